"""Which recipe: a fair comparison of those you name, or a search over all that the model accepts."""

from torchlift.search.automatic import auto
from torchlift.search.comparing import compare
from torchlift.search.found import AutoResult
from torchlift.search.page import auto_page
from torchlift.search.wishes import Delivered, Wish

__all__ = ["AutoResult", "Delivered", "Wish", "auto", "auto_page", "compare"]
