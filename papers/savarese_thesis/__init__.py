"""Principled Approximation Methods for Efficient and Scalable Deep Learning (Savarese, thesis, 2025)."""
