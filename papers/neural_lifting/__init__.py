"""Neural Lifting."""
