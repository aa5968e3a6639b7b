"""At equal cost a recipe computes no more than plain training does, counted by torch over the whole run."""

import copy
import functools

import pytest
import torch

import torchlift as tl
from every_recipe import RECIPES, data, model
from torchlift.flops import count_flops


@functools.cache
def computed(name: str) -> int:
    """FLOPs of a run without validation data, with everything that happens around its steps."""
    optimizer = functools.partial(torch.optim.Adam, lr=0.01)
    settings = {"epochs": 20, "batch_size": 32, "equal_cost": True, "progress": False, "optimizer": optimizer}
    return count_flops(lambda: tl.fit(model(), data(1), recipe=copy.deepcopy(RECIPES[name]), **settings))


@pytest.mark.parametrize(
    "name", ["lifted init", "neural lifting", "sparsification", "smol", "a lift that learns"]
)
def test_nothing_a_recipe_computes_is_free(name: str) -> None:
    assert computed(name) <= 1.01 * computed("plain")
