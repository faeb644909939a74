"""Analyses that passes, lowerings and the protocol checker share."""
