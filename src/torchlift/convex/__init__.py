"""Convex analysis as building blocks."""
