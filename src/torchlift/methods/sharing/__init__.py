"""Weights shared between layers and positions."""
