"""What recipes are made of: their protocol, targets, accounts. No recipe of its own."""
