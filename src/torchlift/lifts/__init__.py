"""Lifts, one file per method."""

from torchlift.lifts.auxiliary import Auxiliary
from torchlift.lifts.distil import Distil
from torchlift.lifts.expand import Expand
from torchlift.lifts.keep import KeepZeros
from torchlift.lifts.lifter import Lifter, deviation
from torchlift.lifts.mask import SoftMask
from torchlift.lifts.normalise import Normalise
from torchlift.lifts.standardise import Standardise

__all__ = [
    "Auxiliary",
    "Distil",
    "Expand",
    "KeepZeros",
    "Lifter",
    "Normalise",
    "SoftMask",
    "Standardise",
    "deviation",
]
