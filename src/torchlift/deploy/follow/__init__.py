"""Following channels through a model: which slices of which weights belong together, and what reads them."""

from torchlift.deploy.follow.follower import Follower
from torchlift.deploy.follow.known import Norm, Shape
from torchlift.deploy.follow.labels import Labels, Place
from torchlift.deploy.follow.running import Trace, trace

__all__ = ["Follower", "Labels", "Norm", "Place", "Shape", "Trace", "trace"]
