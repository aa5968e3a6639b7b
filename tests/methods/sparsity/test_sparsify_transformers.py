"""Sparsifying models of transformers, random weights and data: target, ONNX, packed file."""

from functools import partial

import pytest
import torch
from torch.testing import assert_close

import torchlift as tl
from methods.sparsity.sparse_runs import zeros
from small_transformers import mobile, vit
from torchlift.deploy import export, load, save, shrink
from torchlift.recipes import ContinuousSparsification


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:every gate of")  # two epochs are few
@pytest.mark.parametrize(("make", "size"), [(vit, 16), (mobile, 32)])
def test_the_asked_sparsity_on_transformers(make, size, tmp_path):
    torch.manual_seed(0)
    x = {"pixel_values": torch.randn(32, 3, size, size), "labels": torch.arange(32) % 3}
    settings = {
        "epochs": 2,
        "batch_size": 16,
        "progress": False,
        "optimizer": partial(torch.optim.SGD, lr=0.01),
    }
    result = tl.fit(make(), x, recipe=ContinuousSparsification(sparsity=0.95), **settings)
    assert zeros(result.model) == pytest.approx(0.95, abs=0.005)
    example = {"pixel_values": x["pixel_values"][:2]}
    if make is vit:  # exporting the other takes ten times as long
        assert export(result.model, example, tmp_path / "m.onnx") < 1e-4
    dense = save(make(), tmp_path / "d.tl")
    assert save(result.model, tmp_path / "m.tl") < 0.35 * dense
    with torch.no_grad():
        again = load(tmp_path / "m.tl", into=make())(**example).logits
        assert torch.equal(again, result.model(**example).logits)


def test_heads_masked_by_the_recipe_are_really_removed():
    torch.manual_seed(0)
    x = {"pixel_values": torch.randn(16, 3, 16, 16), "labels": torch.arange(16) % 3}
    recipe = ContinuousSparsification(where="*v_proj.weight", granularity="head", size=8, sparsity=0.5)
    settings = {"epochs": 4, "batch_size": 16, "progress": False}
    result = tl.fit(vit(), x, recipe=recipe, optimizer=partial(torch.optim.SGD, lr=0.01), **settings)
    example = {"pixel_values": x["pixel_values"][:2]}
    small = shrink(result.model, example)
    heads = [m.num_attention_heads for m in small.modules() if type(m).__name__ == "ViTAttention"]
    assert sum(heads) == 4  # of 2 layers with 4 each
    with torch.no_grad():
        assert_close(small(**example).logits, result.model(**example).logits, atol=1e-6, rtol=0)
