"""Recipes, one file per algorithm: ``recipe(task, fit) -> task``."""

from torchlift.recipes.auto import Auto
from torchlift.recipes.centred import Centred
from torchlift.recipes.chain import Chain
from torchlift.recipes.folded_norm import FoldedNorm
from torchlift.recipes.linear_lifting import LinearLifting
from torchlift.recipes.neural_lifting import NeuralLifting
from torchlift.recipes.plain import Plain

__all__ = [
    "Auto",
    "Centred",
    "Chain",
    "FoldedNorm",
    "LinearLifting",
    "NeuralLifting",
    "Plain",
]
