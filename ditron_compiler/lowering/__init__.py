"""Lowerings: one room per target."""
