"""Passes over kernels: tt and ditron operations side by side."""
