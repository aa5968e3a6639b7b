"""Every recipe under one flat name; each lives in its method's folder and is imported when first used."""

from typing import TYPE_CHECKING

from torchlift.lazy import lazy

if TYPE_CHECKING:
    from torchlift.experiments.best_of import BestOf as BestOf
    from torchlift.methods.baselines.bsq import Bsq as Bsq
    from torchlift.methods.baselines.iterative_stochastic import IterativeStochastic as IterativeStochastic
    from torchlift.methods.baselines.magnitude import IterativeMagnitude as IterativeMagnitude
    from torchlift.methods.baselines.magnitude import MagnitudePruning as MagnitudePruning
    from torchlift.methods.chain import Chain as Chain
    from torchlift.methods.coordinates.coarse_to_fine import CoarseToFine as CoarseToFine
    from torchlift.methods.coordinates.rotated import Rotated as Rotated
    from torchlift.methods.depth.deepened import Deepened as Deepened
    from torchlift.methods.depth.layer_pruning import LayerPruning as LayerPruning
    from torchlift.methods.inside import Inside as Inside
    from torchlift.methods.lift_then_tune import LiftThenTune as LiftThenTune
    from torchlift.methods.lifted.initialization import LiftedInit as LiftedInit
    from torchlift.methods.lifted.recipe import Lifted as Lifted
    from torchlift.methods.neural_lifting.recipe import NeuralLifting as NeuralLifting
    from torchlift.methods.plain import Plain as Plain
    from torchlift.methods.precision.rate_distortion import RateDistortion as RateDistortion
    from torchlift.methods.precision.smol import Smol as Smol
    from torchlift.methods.sharing.pooled import Pooled as Pooled
    from torchlift.methods.sharing.soft_sharing import SoftSharing as SoftSharing
    from torchlift.methods.sparsity.channel_pruning import ChannelPruning as ChannelPruning
    from torchlift.methods.sparsity.continuous import ContinuousSparsification as ContinuousSparsification
    from torchlift.methods.sparsity.sequential import SequentialSparsification as SequentialSparsification
    from torchlift.methods.sparsity.tickets import TicketSearch as TicketSearch

HOMES = {
    "CoarseToFine": "methods.coordinates.coarse_to_fine",
    "BestOf": "experiments.best_of",
    "Bsq": "methods.baselines.bsq",
    "Chain": "methods.chain",
    "ChannelPruning": "methods.sparsity.channel_pruning",
    "ContinuousSparsification": "methods.sparsity.continuous",
    "Deepened": "methods.depth.deepened",
    "Inside": "methods.inside",
    "IterativeMagnitude": "methods.baselines.magnitude",
    "IterativeStochastic": "methods.baselines.iterative_stochastic",
    "LayerPruning": "methods.depth.layer_pruning",
    "LiftThenTune": "methods.lift_then_tune",
    "Lifted": "methods.lifted.recipe",
    "LiftedInit": "methods.lifted.initialization",
    "MagnitudePruning": "methods.baselines.magnitude",
    "NeuralLifting": "methods.neural_lifting.recipe",
    "Plain": "methods.plain",
    "Pooled": "methods.sharing.pooled",
    "RateDistortion": "methods.precision.rate_distortion",
    "Rotated": "methods.coordinates.rotated",
    "SequentialSparsification": "methods.sparsity.sequential",
    "Smol": "methods.precision.smol",
    "SoftSharing": "methods.sharing.soft_sharing",
    "TicketSearch": "methods.sparsity.tickets",
}

__all__ = [
    "BestOf",
    "Bsq",
    "Chain",
    "ChannelPruning",
    "CoarseToFine",
    "ContinuousSparsification",
    "Deepened",
    "Inside",
    "IterativeMagnitude",
    "IterativeStochastic",
    "LayerPruning",
    "LiftThenTune",
    "Lifted",
    "LiftedInit",
    "MagnitudePruning",
    "NeuralLifting",
    "Plain",
    "Pooled",
    "RateDistortion",
    "Rotated",
    "SequentialSparsification",
    "Smol",
    "SoftSharing",
    "TicketSearch",
]

__getattr__, __dir__ = lazy(__name__, HOMES)
