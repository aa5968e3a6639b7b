"""Every lift under one flat name; each lives in its method's folder and is imported when first used."""

from typing import TYPE_CHECKING

from torchlift.lazy import lazy

if TYPE_CHECKING:
    from torchlift.methods.baselines.bit_planes import BitPlanes as BitPlanes
    from torchlift.methods.baselines.dorefa import DoReFa as DoReFa
    from torchlift.methods.baselines.hard_concrete import HardConcrete as HardConcrete
    from torchlift.methods.baselines.learned_step import LearnedStep as LearnedStep
    from torchlift.methods.baselines.pact import Pact as Pact
    from torchlift.methods.baselines.slim import Slim as Slim
    from torchlift.methods.baselines.soft_threshold import SoftThreshold as SoftThreshold
    from torchlift.methods.baselines.stochastic_mask import StochasticMask as StochasticMask
    from torchlift.methods.coordinates.average import Average as Average
    from torchlift.methods.coordinates.expand import Expand as Expand
    from torchlift.methods.coordinates.normalize import Normalize as Normalize
    from torchlift.methods.coordinates.rotate import Rotate as Rotate
    from torchlift.methods.coordinates.split import Split as Split
    from torchlift.methods.coordinates.standardize import Standardize as Standardize
    from torchlift.methods.coordinates.whitened import Whitened as Whitened
    from torchlift.methods.depth.critical import CriticalLayer as CriticalLayer
    from torchlift.methods.depth.shallower import Merging as Merging
    from torchlift.methods.depth.shallower import merge_linear as merge_linear
    from torchlift.methods.depth.shallower import merging as merging
    from torchlift.methods.lifted.auxiliary import Auxiliary as Auxiliary
    from torchlift.methods.neural_lifting.distil import Distil as Distil
    from torchlift.methods.neural_lifting.lifter import Lifter as Lifter
    from torchlift.methods.neural_lifting.lifter import deviation as deviation
    from torchlift.methods.precision import precision as precision
    from torchlift.methods.precision.activation_precision import ActivationPrecision as ActivationPrecision
    from torchlift.methods.precision.code_length import CodeLength as CodeLength
    from torchlift.methods.precision.keep_grid import KeepGrid as KeepGrid
    from torchlift.methods.precision.precision import Precision as Precision
    from torchlift.methods.sharing.templates import Templates as Templates
    from torchlift.methods.sharing.templates import reparameterize as reparameterize
    from torchlift.methods.sparsity.soft_mask import SoftMask as SoftMask

HOMES = {
    "Whitened": "methods.coordinates.whitened",
    "ActivationPrecision": "methods.precision.activation_precision",
    "Auxiliary": "methods.lifted.auxiliary",
    "Average": "methods.coordinates.average",
    "BitPlanes": "methods.baselines.bit_planes",
    "CodeLength": "methods.precision.code_length",
    "CriticalLayer": "methods.depth.critical",
    "Distil": "methods.neural_lifting.distil",
    "DoReFa": "methods.baselines.dorefa",
    "Expand": "methods.coordinates.expand",
    "HardConcrete": "methods.baselines.hard_concrete",
    "KeepGrid": "methods.precision.keep_grid",
    "LearnedStep": "methods.baselines.learned_step",
    "Lifter": "methods.neural_lifting.lifter",
    "Merging": "methods.depth.shallower",
    "Normalize": "methods.coordinates.normalize",
    "Pact": "methods.baselines.pact",
    "Precision": "methods.precision.precision",
    "Rotate": "methods.coordinates.rotate",
    "Slim": "methods.baselines.slim",
    "SoftMask": "methods.sparsity.soft_mask",
    "SoftThreshold": "methods.baselines.soft_threshold",
    "Split": "methods.coordinates.split",
    "Standardize": "methods.coordinates.standardize",
    "StochasticMask": "methods.baselines.stochastic_mask",
    "Templates": "methods.sharing.templates",
    "deviation": "methods.neural_lifting.lifter",
    "merge_linear": "methods.depth.shallower",
    "merging": "methods.depth.shallower",
    "reparameterize": "methods.sharing.templates",
}

__all__ = [
    "ActivationPrecision",
    "Auxiliary",
    "Average",
    "BitPlanes",
    "CodeLength",
    "CriticalLayer",
    "Distil",
    "DoReFa",
    "Expand",
    "HardConcrete",
    "KeepGrid",
    "LearnedStep",
    "Lifter",
    "Merging",
    "Normalize",
    "Pact",
    "Precision",
    "Rotate",
    "Slim",
    "SoftMask",
    "SoftThreshold",
    "Split",
    "Standardize",
    "StochasticMask",
    "Templates",
    "Whitened",
    "deviation",
    "merge_linear",
    "merging",
    "reparameterize",
]

MODULES = {"precision": "methods.precision.precision", "templates": "methods.sharing.mixing"}
"""The tensor functions of two methods."""

__getattr__, __dir__ = lazy(__name__, HOMES, MODULES)
