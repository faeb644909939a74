"""From Triton to our IR and back; the only package here that imports triton."""
