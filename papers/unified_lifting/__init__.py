"""A Unified Framework for Lifted Training and Inversion Approaches (arXiv 2510.09796)."""
