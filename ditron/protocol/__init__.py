"""The protocol checker's Python side: capture of scripts, and the API behind ``ditron check``."""
