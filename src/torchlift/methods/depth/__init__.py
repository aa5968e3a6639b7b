"""Deeper for a while, shallower in the end."""
