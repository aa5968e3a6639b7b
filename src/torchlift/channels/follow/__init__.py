"""Following channels through a model: which slices of which weights belong together, and what reads them."""

from torchlift.channels.follow.follower import Follower
from torchlift.channels.follow.labels import Labels, Place
from torchlift.channels.follow.passes import Trace, trace
from torchlift.channels.follow.rules import Norm, Shape

__all__ = ["Follower", "Labels", "Norm", "Place", "Shape", "Trace", "trace"]
