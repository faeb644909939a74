"""The sanitizer's host side: what kernels on GPUs reported becomes an error."""
