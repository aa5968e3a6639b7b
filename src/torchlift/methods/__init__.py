"""Methods, one folder each: lift, recipe, mathematics.

A recipe with hyper-parameters, a name in reports and a word on the tasks it takes is a :class:`Recipe`.
"""

from typing import TYPE_CHECKING

from torchlift.lazy import lazy

if TYPE_CHECKING:
    from torchlift.methods.recipe import Recipe as Recipe
    from torchlift.methods.recipe import as_recipe as as_recipe

HOMES = {"Recipe": "methods.recipe", "as_recipe": "methods.recipe"}

__all__ = ["Recipe", "as_recipe"]

__getattr__, __dir__ = lazy(__name__, HOMES)
