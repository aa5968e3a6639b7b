"""Lifts, one file per method."""

from torchlift.lifts.distil import Distil
from torchlift.lifts.expand import Expand
from torchlift.lifts.keep import KeepZeros
from torchlift.lifts.lifter import Lifter, deviation
from torchlift.lifts.mask import SoftMask

__all__ = ["Distil", "Expand", "KeepZeros", "Lifter", "SoftMask", "deviation"]
