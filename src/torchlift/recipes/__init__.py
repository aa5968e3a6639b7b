"""Recipes, one file per algorithm: ``recipe(task, fit) -> task``."""

from torchlift.recipes.auto import Auto
from torchlift.recipes.averaged import Averaged
from torchlift.recipes.bsq import Bsq
from torchlift.recipes.centred import Centred
from torchlift.recipes.chain import Chain
from torchlift.recipes.channels import ChannelPruning
from torchlift.recipes.deepened import Deepened
from torchlift.recipes.folded_norm import FoldedNorm
from torchlift.recipes.in_parts import InParts
from torchlift.recipes.layer_pruning import LayerPruning
from torchlift.recipes.lifted import Lifted
from torchlift.recipes.lifted_init import LiftedInit
from torchlift.recipes.linear_lifting import LinearLifting
from torchlift.recipes.magnitude import IterativeMagnitude, MagnitudePruning
from torchlift.recipes.neural_lifting import NeuralLifting
from torchlift.recipes.one_lift import LiftThenTune
from torchlift.recipes.plain import Plain
from torchlift.recipes.pooled import Pooled
from torchlift.recipes.rotated import Rotated
from torchlift.recipes.sequential import SequentialSparsification
from torchlift.recipes.sharing import SoftSharing
from torchlift.recipes.smol import Smol
from torchlift.recipes.sparsify import ContinuousSparsification
from torchlift.recipes.stochastic import IterativeStochastic
from torchlift.recipes.tickets import TicketSearch

__all__ = [
    "Auto",
    "Averaged",
    "Bsq",
    "Centred",
    "Chain",
    "ChannelPruning",
    "ContinuousSparsification",
    "Deepened",
    "FoldedNorm",
    "InParts",
    "IterativeMagnitude",
    "IterativeStochastic",
    "LayerPruning",
    "LiftThenTune",
    "Lifted",
    "LiftedInit",
    "LinearLifting",
    "MagnitudePruning",
    "NeuralLifting",
    "Plain",
    "Pooled",
    "Rotated",
    "SequentialSparsification",
    "Smol",
    "SoftSharing",
    "TicketSearch",
]
