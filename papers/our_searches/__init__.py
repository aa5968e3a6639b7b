"""Settings searched here: what was tried for the tables, on other seeds and teachers."""
