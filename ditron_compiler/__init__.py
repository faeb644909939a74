"""The DITRON compiler: IR, passes and lowerings for kernels that compute and communicate."""
