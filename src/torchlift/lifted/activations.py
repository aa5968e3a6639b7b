"""The activation table under its public name ``torchlift.lifted.activations``; it lives in ``convex``."""

from torchlift.convex.activations import *  # noqa: F403
from torchlift.convex.activations import __all__ as __all__
