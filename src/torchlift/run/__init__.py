"""One run from the user's model and data, and what a comparison of several found."""

from torchlift.run.comparison import Comparison
from torchlift.run.record import arguments
from torchlift.run.result import Result
from torchlift.run.single import fit

__all__ = ["Comparison", "Result", "arguments", "fit"]
