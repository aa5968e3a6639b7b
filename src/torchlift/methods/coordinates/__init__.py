"""Exact changes of coordinates for the time of training."""
