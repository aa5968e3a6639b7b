"""Which recipe: a fair comparison of those you name, or a search over all that the model accepts."""

from torchlift.search.comparing import compare

__all__ = ["compare"]
