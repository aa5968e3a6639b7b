"""Which layer feeds which, and with what: one call of a model watched from outside."""
