"""Lifts, one file per method."""

from torchlift.lifts.activation_precision import ActivationPrecision
from torchlift.lifts.auxiliary import Auxiliary
from torchlift.lifts.average import Average
from torchlift.lifts.bernoulli import StochasticMask
from torchlift.lifts.bit_planes import BitPlanes
from torchlift.lifts.critical import CriticalLayer
from torchlift.lifts.dorefa import DoReFa
from torchlift.lifts.expand import Expand
from torchlift.lifts.hard_concrete import HardConcrete
from torchlift.lifts.keep import KeepZeros
from torchlift.lifts.keep_grid import KeepGrid
from torchlift.lifts.learned_step import LearnedStep
from torchlift.lifts.lifter import Lifter, deviation
from torchlift.lifts.mask import SoftMask
from torchlift.lifts.normalise import Normalise
from torchlift.lifts.pact import Pact
from torchlift.lifts.precision import Precision
from torchlift.lifts.rotate import Rotate
from torchlift.lifts.shallower import Merging, merge_linear, merging
from torchlift.lifts.sharing import Templates, reparameterize
from torchlift.lifts.slim import Slim
from torchlift.lifts.soft_threshold import SoftThreshold
from torchlift.lifts.split import Split
from torchlift.lifts.standardise import Standardise
from torchlift.lifts.tools.distil import Distil

__all__ = [
    "ActivationPrecision",
    "Auxiliary",
    "Average",
    "BitPlanes",
    "CriticalLayer",
    "Distil",
    "DoReFa",
    "Expand",
    "HardConcrete",
    "KeepGrid",
    "KeepZeros",
    "LearnedStep",
    "Lifter",
    "Merging",
    "Normalise",
    "Pact",
    "Precision",
    "Rotate",
    "Slim",
    "SoftMask",
    "SoftThreshold",
    "Split",
    "Standardise",
    "StochasticMask",
    "Templates",
    "deviation",
    "merge_linear",
    "merging",
    "reparameterize",
]
