"""Train a larger, smoother problem; bring the solution back to the small network you wanted."""

__version__ = "0.1.0"
