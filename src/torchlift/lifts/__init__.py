"""Lifts, one file per method."""

from torchlift.lifts.auxiliary import Auxiliary
from torchlift.lifts.bernoulli import StochasticMask
from torchlift.lifts.critical import CriticalLayer
from torchlift.lifts.distil import Distil
from torchlift.lifts.expand import Expand
from torchlift.lifts.hard_concrete import HardConcrete
from torchlift.lifts.keep import KeepZeros
from torchlift.lifts.lifter import Lifter, deviation
from torchlift.lifts.mask import SoftMask
from torchlift.lifts.normalise import Normalise
from torchlift.lifts.rotate import Rotate
from torchlift.lifts.shallower import Merging, merge_linear, merging
from torchlift.lifts.slim import Slim
from torchlift.lifts.soft_threshold import SoftThreshold
from torchlift.lifts.standardise import Standardise

__all__ = [
    "Auxiliary",
    "CriticalLayer",
    "Distil",
    "Expand",
    "HardConcrete",
    "KeepZeros",
    "Lifter",
    "Merging",
    "Normalise",
    "Rotate",
    "Slim",
    "SoftMask",
    "SoftThreshold",
    "Standardise",
    "StochasticMask",
    "deviation",
    "merge_linear",
    "merging",
]
