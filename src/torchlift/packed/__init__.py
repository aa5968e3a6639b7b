"""The packed file: schema, entropy coder, modules."""
