"""Weights that others quantized, without a record: read as what they are, exactly, near their entropy."""

import pytest
import torch
from test_tensors import there_and_back
from torch import Tensor

SHAPE = (256, 256)


def weights() -> Tensor:
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)) * 0.05


def groups(w: Tensor) -> Tensor:
    return w.reshape(SHAPE[0], -1, 32)


def signed_zeros() -> Tensor:
    w = weights()
    step = w.abs().amax(1, keepdim=True) / 7
    return (w / step).round() * step


def q4_0() -> Tensor:
    w = groups(weights())
    step = (w.abs().amax(-1, keepdim=True) / 8).half().float()
    return ((w / step).round().clamp(-8, 7) * step).reshape(SHAPE)


def with_offsets(w: Tensor) -> Tensor:
    low = w.amin(-1, keepdim=True)
    step = (w.amax(-1, keepdim=True) - low) / 15
    return (((w - low) / step).round() * step + low).reshape(SHAPE)


def columns(bits: int = 4) -> Tensor:
    scale = torch.rand(SHAPE[1], generator=torch.Generator().manual_seed(1)) + 0.5
    w = weights() * scale
    step = w.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
    return (w / step).round() * step / scale


FORMS = {
    "both zeros": (signed_zeros(), 3.7),
    "groups along rows": (q4_0(), 4.6),
    "offsets by rows": (with_offsets(weights()), 3.9),
    "offsets by groups": (with_offsets(groups(weights())), 5.7),
    "columns": (columns(), 4.6),
    "rows, then bfloat16": (signed_zeros().bfloat16(), 3.7),
    "rows, then float16": (signed_zeros().half(), 3.7),
    "one step": ((weights() * 100).round() / 100, 4.6),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_others_are_read(name):
    tensor, bits = FORMS[name]
    size, least = there_and_back(tensor)
    assert least <= size <= 1.02 * least + 256
    assert 8 * size / tensor.numel() <= bits


def test_what_is_on_no_grid_stays_as_it_is():
    dense = weights()
    size, least = there_and_back(dense)
    assert least <= size <= 4 * dense.numel()
    spoiled = columns()
    spoiled[3, 5] *= 1.01
    there_and_back(spoiled)
    for value in (torch.inf, torch.nan, 1e-42, -0.0):
        odd = signed_zeros()
        odd[7, 7] = value
        there_and_back(odd, with_offsets(weights()).index_fill(0, torch.tensor([3]), value))
