"""Chains of two: a sample of what benchmarks/pair_matrix.py runs."""

import re

import pytest

import torchlift as tl
from every_recipe import COORDINATES, one_each
from pairs import MODELS, recipes, run_pair

STRIDE = 11
"""Prime to the number of recipes."""

REASONS = (
    r"(Chain is not for this model|Chain stops at 'second'): .*",
    r"fit '.*': one step costs .* times its share of the budget: raise it\.",
)
"""What may be said, in one line, in place of a model."""


def sample(model: str) -> list[tuple[str, str]]:
    names = list(recipes(model))
    pairs = [(name, names[(STRIDE * index + 3) % len(names)]) for index, name in enumerate(names)]
    return pairs if model == "conv" else pairs[::2]


@pytest.mark.parametrize(("model", "first", "second"), [(m, *pair) for m in MODELS for pair in sample(m)])
def test_a_pair_is_delivered_or_raises_one_line(model: str, first: str, second: str) -> None:
    actual = run_pair(model, first, second)
    assert actual == "delivered" or any(re.fullmatch(reason, actual) for reason in REASONS), actual


def test_every_recipe_stands_once_in_either_place() -> None:
    pairs, names = sample("conv"), set(recipes("conv"))
    assert {first for first, _ in pairs} == {second for _, second in pairs} == names


def test_every_public_recipe_stands_in_every_matrix() -> None:
    """Pairs here; resume and two processes in tests/train/test_durable.py, from one_each."""
    every = {*tl.recipes.__all__, *COORDINATES}
    for table in (recipes("conv"), recipes("transformer"), {**one_each(), "": tl.recipes.CoarseToFine()}):
        assert {type(recipe).__name__ for recipe in table.values()} == every
