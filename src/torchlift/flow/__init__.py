"""Which layer feeds which, and with what: one call of a model seen from outside."""
