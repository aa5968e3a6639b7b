"""The activation table under the name ``lifted.activations``; it lives in ``convex``."""

from torchlift.convex.activations import *  # noqa: F403 - a second name for the same module
from torchlift.convex.activations import __all__ as __all__
