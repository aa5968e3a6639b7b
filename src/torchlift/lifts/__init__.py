"""Lifts, one file per method."""

from torchlift.lifts.auxiliary import Auxiliary
from torchlift.lifts.bernoulli import StochasticMask
from torchlift.lifts.expand import Expand
from torchlift.lifts.hard_concrete import HardConcrete
from torchlift.lifts.keep import KeepZeros
from torchlift.lifts.lifter import Lifter, deviation
from torchlift.lifts.mask import SoftMask
from torchlift.lifts.normalise import Normalise
from torchlift.lifts.rotate import Rotate
from torchlift.lifts.sharing import Templates, reparameterize
from torchlift.lifts.slim import Slim
from torchlift.lifts.soft_threshold import SoftThreshold
from torchlift.lifts.standardise import Standardise
from torchlift.lifts.tools.distil import Distil

__all__ = [
    "Auxiliary",
    "Distil",
    "Expand",
    "HardConcrete",
    "KeepZeros",
    "Lifter",
    "Normalise",
    "Rotate",
    "Slim",
    "SoftMask",
    "SoftThreshold",
    "Standardise",
    "StochasticMask",
    "Templates",
    "deviation",
    "reparameterize",
]
