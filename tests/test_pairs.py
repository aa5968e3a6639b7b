"""Chains of two: a sample of the matrix that benchmarks/pair_matrix.py fills."""

import json
from pathlib import Path

import pytest

from pairs import MODELS, recipes, run_pair

MATRIX = Path(__file__).parents[1] / "benchmarks" / "results" / "pair_matrix.json"
STRIDE = 7
"""Prime to the number of recipes: each stands once in first and once in second place."""


def sample(model: str) -> list[tuple[str, str]]:
    names = list(recipes(model))
    return [(name, names[(STRIDE * place + 3) % len(names)]) for place, name in enumerate(names)]


@pytest.mark.parametrize(("model", "first", "second"), [(m, *pair) for m in MODELS for pair in sample(m)])
def test_a_pair_ends_as_the_matrix_says(model: str, first: str, second: str) -> None:
    expected = json.loads(MATRIX.read_text())[model][f"{first} → {second}"]
    found = run_pair(model, first, second)
    assert (found == "delivered") == (expected == "delivered"), f"{found}; the matrix: {expected}"
    assert "\n" not in found, "a refusal is one line"


@pytest.mark.parametrize("model", MODELS)
def test_the_matrix_is_whole(model: str) -> None:
    pairs, names = json.loads(MATRIX.read_text())[model], list(recipes(model))
    assert set(pairs) == {f"{first} → {second}" for first in names for second in names}
    assert {pair[0] for pair in sample(model)} == {pair[1] for pair in sample(model)} == set(names)
