"""Lifted networks: activations as variables, trained by convex blocks."""
