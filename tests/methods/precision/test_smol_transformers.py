"""Zeros, then bits, on models of transformers: runs, saves, loads, exports."""

import dataclasses
from functools import partial

import pytest
import torch

import torchlift as tl
from small_transformers import mobile, vit
from torchlift.lifts import Normalize
from torchlift.recipes import Chain, ContinuousSparsification, Inside, Smol

COORDINATES = ["plain", "normalized", "normalized throughout"]
SLOW = [pytest.param(mobile, 32, kind, marks=pytest.mark.fuzz) for kind in COORDINATES[1:]]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:every gate of")  # two epochs are few
@pytest.mark.parametrize(
    ("make", "size", "coordinates"),
    [*((vit, 16, kind) for kind in COORDINATES), (mobile, 32, "plain"), *SLOW],
)
def test_a_chain_on_transformers(make, size, coordinates, tmp_path):
    torch.manual_seed(0)
    x = {"pixel_values": torch.randn(32, 3, size, size), "labels": torch.arange(32) % 3}
    prune = ContinuousSparsification(sparsity=0.8)
    recipe = Chain({"prune": prune, "bits": Smol(bits=0.5)})
    if coordinates == "normalized":
        recipe = Chain({"prune": Inside(Normalize(), prune), "bits": Smol(bits=0.5)})
    elif coordinates == "normalized throughout":
        prune = dataclasses.replace(prune, logit_step=1.0)
        recipe = Inside(Normalize(), Chain(prune, Smol(bits=0.5, zeros="moving"), restart=False))
    optimizer = partial(torch.optim.SGD, lr=0.01)
    result = tl.fit(make(), x, recipe=recipe, epochs=4, batch_size=16, progress=False, optimizer=optimizer)
    weights = {n: p for n, p in result.model.named_parameters() if n.endswith("weight") and p.ndim > 1}
    total = sum(p.numel() for p in weights.values())
    assert sum(int((p == 0).sum()) for p in weights.values()) / total >= 0.795
    assert all(result.stored[name].step is not None for name in weights)
    assert result.history[-1]["bits"] <= 0.5
    example = {"pixel_values": x["pixel_values"][:2]}
    dense = tl.deploy.save(make(), tmp_path / "d.tl")
    assert tl.deploy.save(result.model, tmp_path / "m.tl") < 0.25 * dense
    again = tl.deploy.load(tmp_path / "m.tl", into=make())
    with torch.no_grad():
        assert torch.equal(again(**example).logits, result.model(**example).logits)
    if coordinates == "plain" and make is vit:
        return  # the row of make test; an export takes longer than all the rest
    actual = tl.deploy.export(
        result.model,
        example,
        tmp_path / "m.onnx",
        integer="all",
        calibration={"pixel_values": x["pixel_values"]},
    )
    assert actual.card["bytes"] < actual.card["float_bytes"]
    assert "int8, levels as trained" in actual.card["weights"].values()
