"""Following channels through a model: which slices of which weights belong together, and what reads them."""

from torchlift.channels.follow.follower import Follower
from torchlift.channels.follow.labels import Axis, Labels
from torchlift.channels.follow.rules import ModuleSizes, Norm
from torchlift.channels.follow.trace import Trace, trace, traced

__all__ = ["Axis", "Follower", "Labels", "ModuleSizes", "Norm", "Trace", "trace", "traced"]
