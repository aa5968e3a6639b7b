"""Learned mixed precision (SMOL) and fine-tuning on grids."""
