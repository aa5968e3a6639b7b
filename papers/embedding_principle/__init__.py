"""Bai, Luo, Xu, Zhang: Embedding Principle in Depth for the Loss Landscape Analysis of DNNs (2024)."""
