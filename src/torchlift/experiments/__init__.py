"""Which recipe: a fair comparison of those you name, or a search over all that the model accepts."""

from torchlift.experiments.auto import auto
from torchlift.experiments.auto_page import auto_page
from torchlift.experiments.auto_result import AutoResult
from torchlift.experiments.compare import compare
from torchlift.experiments.comparison import Comparison
from torchlift.experiments.constraints import Delivered, Wish

__all__ = ["AutoResult", "Comparison", "Delivered", "Wish", "auto", "auto_page", "compare"]
