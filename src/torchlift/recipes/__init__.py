"""Recipes, one file per algorithm: ``recipe(task, fit) -> task``."""

from torchlift.recipes.neural_lifting import NeuralLifting
from torchlift.recipes.plain import Plain

__all__ = ["NeuralLifting", "Plain"]
