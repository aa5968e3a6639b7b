"""One run or a fair comparison of several, from the user's model and data."""

from torchlift.run.comparison import Comparison, compare
from torchlift.run.record import arguments
from torchlift.run.result import Result
from torchlift.run.single import fit

__all__ = ["Comparison", "Result", "arguments", "compare", "fit"]
