"""Merging layers that act linearly on the data: a network with fewer layers."""

import copy
import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.flow.activity import input_pieces
from torchlift.loss import call, output
from torchlift.methods.depth.reduce import reduced

LOG = logging.getLogger("torchlift")


@dataclasses.dataclass(frozen=True)
class Merging:
    """A model with fewer layers, what went, what stayed and why, and how far its outputs moved."""

    model: nn.Module
    merged: tuple[str, ...]
    """The layers that were multiplied into the next, in that order."""
    kept: Mapping[str, str]
    """Why each other layer that bends is still there."""
    linearity: Mapping[str, float]
    """The least |ρ| of each layer when it was merged, or at the end."""
    error: float
    """‖outputs − outputs before‖ / ‖outputs before‖ on the held-out inputs (on x without any)."""
    largest: float
    """The largest difference of an output there."""
    agreement: float
    """How often the largest output is the same one there."""
    depth: tuple[int, int]
    """Layers that bend, before and after."""

    def __str__(self) -> str:
        lines = [f"{self.depth[0]} → {self.depth[1]} layers that bend; outputs moved by {self.error:.2g}"]
        lines += [f"  merged {name} (linearity {self.linearity.get(name, 1.0):.4f})" for name in self.merged]
        return "\n".join(lines + [f"  kept {name}: {why}" for name, why in self.kept.items()])


def merge_linear(
    model: nn.Module,
    x: Any,
    threshold: float = 0.99,
    *,
    layers: int | None = None,
    held_out: Any = None,
    grow: bool = False,
) -> nn.Module:
    """A copy of the model with the layers merged that act linearly on the inputs ``x``; see :func:`merging`.

    The log (``torchlift``) says what was merged, what was not, and why.
    """
    done = merging(model, x, threshold, layers=layers, held_out=held_out, grow=grow)
    LOG.log(logging.INFO if done.merged else logging.WARNING, "merge_linear: %s", done)
    return done.model


def merging(
    model: nn.Module,
    x: Any,
    threshold: float = 0.99,
    *,
    layers: int | None = None,
    held_out: Any = None,
    grow: bool = False,
) -> Merging:
    """W₂ σ(W₁ h + b₁) + b₂ → W₂ diag(λ) W₁ h + W₂ (λ ∘ b₁ + μ) + b₂ where σ(z_j) ≈ λ_j z_j + μ_j on the data.

    Bai et al. (2024), section 5.4: a layer is linear if its least |ρ| reaches ``threshold``; λ and μ are
    least-squares fits, neuron by neuron, so that a layer short of perfect is merged as well as a line can.
    With ``layers`` the most linear go, whatever the threshold, until so many that bend are left. Linear and
    convolution layers, batch norms between them, residual blocks x + σ(W x + b); neighbors with nothing
    between them are multiplied too. What would need more multiplications than before stays, unless ``grow``.
    Each merge is checked: the model must compute what it would with the line in place of the activation.
    """
    done = reduced(model, x, threshold, layers, grow)
    moved = compared(model, done.model, x if held_out is None else held_out)
    return Merging(done.model, done.merged, done.kept, done.linearity, *moved, depth=done.depth)


def compared(before: nn.Module, after: nn.Module, x: Any) -> tuple[float, float, float]:
    """Relative error, largest difference and agreement of two models' outputs, in evaluation mode."""
    before, after = copy.deepcopy(before).eval(), copy.deepcopy(after).eval()
    off, size, largest, same, count = 0.0, 0.0, 0.0, 0, 0
    with torch.no_grad():
        for piece in input_pieces(x, before):
            want: Tensor = output(call(before, piece))
            achieved: Tensor = output(call(after, piece))
            off, size = off + float((achieved - want).square().sum()), size + float(want.square().sum())
            largest = max(largest, float((achieved - want).abs().max()))
            same += int((achieved.argmax(-1) == want.argmax(-1)).sum())
            count += want[..., 0].numel()
    return (off / size) ** 0.5 if size else 0.0, largest, same / count
