"""One file per verb (or two that belong together); nothing here imports torch before a verb runs."""
