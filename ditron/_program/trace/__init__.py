"""Tracing: a Python function becomes a ``ditron.program`` in IR."""
