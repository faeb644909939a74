"""Typed operation classes, one module per dialect, imported when first needed."""
