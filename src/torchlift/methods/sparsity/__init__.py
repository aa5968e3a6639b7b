"""Continuous sparsification, tickets and channel pruning."""
