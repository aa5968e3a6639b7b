"""One run from the user's model and data."""

from torchlift.train.run.fit import fit
from torchlift.train.run.record import arguments
from torchlift.train.run.result import Result

__all__ = ["Result", "arguments", "fit"]
