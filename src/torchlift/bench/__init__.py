"""Measurements: the papers' results beside ours."""
