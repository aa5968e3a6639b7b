"""Which recipe: a fair comparison of those you name, or a search over all that the model accepts."""

from torchlift.experiments.arm import Arm
from torchlift.experiments.auto import auto
from torchlift.experiments.auto_page import auto_page
from torchlift.experiments.auto_result import AutoResult
from torchlift.experiments.compare import compare
from torchlift.experiments.comparison import Comparison
from torchlift.experiments.constraints import Constraints, Delivered

__all__ = ["Arm", "AutoResult", "Comparison", "Constraints", "Delivered", "auto", "auto_page", "compare"]
