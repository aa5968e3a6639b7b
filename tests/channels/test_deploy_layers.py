"""Layers of shrunken models against torch's own on inputs with zeros."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from torchlift.channels.follow.norms import rms_form, scaled_rms
from torchlift.channels.layers import CountedLayerNorm, FewerHeads, merged_mask


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 12), st.integers(1, 11), st.integers(0, 10_000))
def test_a_layer_norm_remembers_features_that_are_zero(count, kept, seed):
    kept = min(kept, count - 1)
    torch.manual_seed(seed)
    norm = nn.LayerNorm(count).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x = torch.randn(3, 4, count, dtype=torch.float64)
    x[..., kept:] = 0
    small = CountedLayerNorm(norm.weight[:kept].detach(), norm.bias[:kept].detach(), norm.eps, count)
    assert_close(small(x[..., :kept]), norm(x)[..., :kept])
    with torch.no_grad():  # from torch's statistics instead
        assert_close(small(x[..., :kept]), norm(x)[..., :kept])


@pytest.mark.parametrize("affine", ["", "weight", "bias"])
def test_a_layer_norm_is_the_same_with_and_without_gradients(affine):
    torch.manual_seed(0)
    weight, bias = torch.randn(8), torch.randn(8)
    small = CountedLayerNorm(weight if affine else None, bias if affine == "bias" else None, 1e-5, 20)
    x = (3 + torch.randn(5, 8)).requires_grad_()
    y = small(x)
    with torch.no_grad():
        assert_close(small(x), y)
    whole = nn.functional.layer_norm(nn.functional.pad(x, (0, 12)), (20,))[:, :8]
    scale = weight if affine else torch.ones(8)
    (expected,) = torch.autograd.grad((whole * scale).sum(), x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert_close(slope, expected)
    assert_close(small.bfloat16()(x.bfloat16()).float(), y, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("kind", ["rms", "rms+1"])
@settings(max_examples=25, deadline=None)
@given(st.integers(2, 12), st.integers(1, 11), st.integers(0, 10_000))
def test_a_root_mean_square_norm_is_rescaled_for_features_that_are_zero(kind, count, kept, seed):
    kept = min(kept, count - 1)
    torch.manual_seed(seed)
    x, weight = torch.randn(5, count, dtype=torch.float64), torch.randn(count, dtype=torch.float64)
    x[:, kept:] = 0
    plus = float(kind == "rms+1")
    want = x / (x.square().mean(1, keepdim=True) + 0.1).sqrt() * (weight + plus)
    scaled, eps = scaled_rms(weight, 0.1, count, kept, kind)
    y = x[:, :kept]
    actual = y / (y.square().mean(1, keepdim=True) + eps).sqrt() * (scaled[:kept] + plus)
    assert_close(actual, want[:, :kept])


class Scaled(nn.Module):
    def __init__(self, width: int, power: float) -> None:
        super().__init__()
        self.weight, self.eps, self.power = nn.Parameter(torch.randn(width)), 1e-5, power

    def forward(self, x):
        return x * (x.square().mean(-1, keepdim=True) + self.eps) ** self.power * self.weight


def test_a_norm_is_told_by_what_it_computes():
    x = torch.randn(4, 6)
    right, wrong = Scaled(6, -0.5), Scaled(6, -0.4)
    assert rms_form(right).kind(right, x, right(x)) == "rms"
    assert rms_form(wrong).kind(wrong, x, wrong(x)) is None
    assert rms_form(nn.LayerNorm(6)) is None


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("mask", ["none", "causal", "padding", "per head"])
def test_attention_with_fewer_heads_is_attention_whose_other_heads_read_nothing(batch_first, mask):
    torch.manual_seed(0)
    full = nn.MultiheadAttention(12, 3, batch_first=batch_first).eval()
    with torch.no_grad():
        full.in_proj_bias.normal_()
        full.out_proj.weight[:, 4:8] = 0
    kept = [0, 1, 2, 3, 8, 9, 10, 11]
    rows = [r + 12 * projection for projection in range(3) for r in kept]
    few = FewerHeads(full, 4)
    few.in_proj_weight = nn.Parameter(full.in_proj_weight[rows].detach())
    few.in_proj_bias = nn.Parameter(full.in_proj_bias[rows].detach())
    few.out_proj = nn.Linear(8, 12)
    few.out_proj.weight = nn.Parameter(full.out_proj.weight[:, kept].detach())
    few.out_proj.bias = nn.Parameter(full.out_proj.bias.detach())
    x = torch.randn(2, 5, 12) if batch_first else torch.randn(5, 2, 12)
    masks = {
        "none": {},
        "causal": {"attn_mask": torch.ones(5, 5).triu(1).bool()},
        "padding": {"key_padding_mask": torch.tensor([[False] * 5, [False] * 3 + [True] * 2])},
        "per head": {"attn_mask": torch.randn(6, 5, 5)},
    }[mask]
    ours = dict(masks)
    if mask == "per head":  # (samples · heads) masks: those of the heads that are left
        ours["attn_mask"] = masks["attn_mask"].view(2, 3, 5, 5)[:, [0, 2]].reshape(4, 5, 5)
    assert few.num_heads == 2
    assert_close(few(x, x, x, **ours)[0], full(x, x, x, **masks)[0])


def test_masks_are_added_and_booleans_forbid():
    scores = torch.zeros(2, 1, 3, 3)
    actual = merged_mask(torch.ones(3, 3).triu(1).bool(), torch.tensor([[0.0, 0, -1], [0, 0, 0]]), scores)
    assert actual.shape == (2, 1, 3, 3)
    assert actual[0, 0, 0].tolist() == [0, -torch.inf, -torch.inf]
    assert actual[0, 0, 2].tolist() == [0, 0, -1]
