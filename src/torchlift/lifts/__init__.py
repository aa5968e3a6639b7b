"""Lifts, one file per method."""

from torchlift.lifts.keep import KeepZeros
from torchlift.lifts.mask import SoftMask

__all__ = ["KeepZeros", "SoftMask"]
