"""Lifts, one file per method."""

from torchlift.lifts.activation_precision import ActivationPrecision
from torchlift.lifts.auxiliary import Auxiliary
from torchlift.lifts.bernoulli import StochasticMask
from torchlift.lifts.distil import Distil
from torchlift.lifts.expand import Expand
from torchlift.lifts.grid import KeepGrid
from torchlift.lifts.hard_concrete import HardConcrete
from torchlift.lifts.keep import KeepZeros
from torchlift.lifts.lifter import Lifter, deviation
from torchlift.lifts.mask import SoftMask
from torchlift.lifts.normalise import Normalise
from torchlift.lifts.precision import Precision
from torchlift.lifts.rotate import Rotate
from torchlift.lifts.slim import Slim
from torchlift.lifts.soft_threshold import SoftThreshold
from torchlift.lifts.standardise import Standardise

__all__ = [
    "ActivationPrecision",
    "Auxiliary",
    "Distil",
    "Expand",
    "HardConcrete",
    "KeepGrid",
    "KeepZeros",
    "Lifter",
    "Normalise",
    "Precision",
    "Rotate",
    "Slim",
    "SoftMask",
    "SoftThreshold",
    "Standardise",
    "StochasticMask",
    "deviation",
]
