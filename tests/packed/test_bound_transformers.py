"""Models of transformers on grids of others are stored near the entropy of their values."""

import math
from collections import Counter

import pytest
import torch
from torch import nn

from small_transformers import mobile, vit
from torchlift.deploy import load, save

transformers = pytest.importorskip("transformers")


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(vocab_size=300, n_positions=32, n_embd=48, n_layer=2, n_head=4)
    return transformers.GPT2LMHeadModel(config)


def on_a_grid(model: nn.Module, zeros: float) -> nn.Module:
    """Matrices on a grid of 3 bits with a scale of their own, some of their entries zero."""
    with torch.no_grad():
        for weight in (p for p in model.parameters() if p.ndim > 1):
            scale = float(weight.abs().max()) / 1.7
            weight.copy_((weight / scale * 8).round() / 8 * scale)
            weight[torch.rand_like(weight) < zeros] = 0
    return model


def bound_by_hand(model: nn.Module) -> float:
    """n·H(values) of matrices, and the bytes of everything else; tied tensors once."""
    total = 0.0
    for tensor in {t.data_ptr(): t for t in model.state_dict().values()}.values():
        values = Counter(tensor.flatten().tolist())
        count = tensor.numel()
        if tensor.ndim < 2:
            total += count * tensor.element_size()
        else:
            total += sum(n * math.log2(count / n) for n in values.values()) / 8 + 4 * len(values)
    return total


@pytest.mark.parametrize(("make", "zeros"), [(vit, 0.0), (mobile, 0.9), (gpt2, 0.9)])
def test_quantized_transformers_are_near_their_entropy(make, zeros, tmp_path):
    torch.manual_seed(0)
    model = on_a_grid(make(), zeros)
    assert save(model, tmp_path / "m.tl") <= 1.02 * bound_by_hand(model) + 4096
    again = load(tmp_path / "m.tl", into=make()).state_dict()
    assert all(torch.equal(again[name], value) for name, value in model.state_dict().items())
