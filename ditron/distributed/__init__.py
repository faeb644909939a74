"""Ranks, groups, symmetric memory."""
