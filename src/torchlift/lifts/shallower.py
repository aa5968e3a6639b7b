"""Merging layers that act linearly on the data: a network with fewer layers."""

import copy
import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.core.activity import moments, pieces
from torchlift.core.affine import Moments
from torchlift.core.flow import chunks, flow
from torchlift.core.loss import call, output
from torchlift.errors import TorchliftError
from torchlift.lifts.splice import Line, growth, merged, spliced
from torchlift.lifts.spots import Spot, spots

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
    convolution layers, batch norms between them, residual blocks x + σ(W x + b); neighbours with nothing
    between them are multiplied too. What would need more multiplications than before stays, unless ``grow``.
    Each merge is checked: the model must compute what it would with the line in place of the activation.
    """
    was, mode = copy.deepcopy(model).eval(), model.training
    model = copy.deepcopy(model)
    gone: list[str] = []
    scores: dict[str, float] = {}
    banned: dict[str, str] = {}
    start = depth(model, x)
    while True:
        open_, seen, refused = candidates(model, x, banned)
        scores |= {name: score(one) for name, one in seen.items()}
        free = [spot for spot in open_ if spot.bend is None]
        best = max((s for s in open_ if s.bend is not None), key=lambda s: scores[s.layer], default=None)
        wanted = best is not None and (
            scores[best.layer] >= threshold if layers is None else depth(model, x) > layers
        )
        spot = free[0] if free else best if wanted else None
        if spot is None:
            break
        try:
            model = shallower(model, spot, seen.get(spot.layer), x, grow)
        except TorchliftError as reason:
            banned[spot.layer] = str(reason)
            continue
        gone.append(spot.layer)
    enough = "" if layers is None else f"{layers} that bend were asked for"
    kept = refused | {s.layer: enough or short(seen[s.layer], threshold) for s in open_ if s.bend is not None}
    model.train(mode)
    moved = compared(was, model, x if held_out is None else held_out)
    return Merging(model, tuple(gone), kept, scores, *moved, depth=(start, depth(model, x)))


def candidates(
    model: nn.Module, x: Any, banned: Mapping[str, str]
) -> tuple[list[Spot], dict[str, Moments], dict[str, str]]:
    """What can be merged as far as the structure goes, what neurons do, and why the rest cannot."""
    shape = flow(model, next(chunks(next(pieces(x, model)), 32)))
    found = spots(model, shape)
    refused = {s.layer: banned.get(s.layer) or s.refusal for s in found if s.refusal or s.layer in banned}
    refused = {n: why for n, why in refused.items() if any(s.layer == n and s.bend for s in found)}
    for op in shape.of("activation"):
        if not op.layer:
            refused[f"{op.name}.{op.function}".strip(".")] = "it bends what is no layer's own output"
    open_ = [s for s in found if not s.refusal and s.layer not in banned]
    return open_, moments(model, x), refused


def score(seen: Moments) -> float:
    """The least |ρ| of a layer; constant neurons are lines."""
    known = seen.correlation[~seen.correlation.isnan()]
    return float(known.min()) if known.numel() else 1.0


def short(seen: Moments, threshold: float) -> str:
    """Why a layer is not linear enough."""
    known = torch.nan_to_num(seen.correlation, nan=2.0)
    return f"neuron {int(known.argmin())} bends: |ρ| {float(known.min()):.4f} < {threshold}"


def depth(model: nn.Module, x: Any) -> int:
    """How many layers bend: activations in one call."""
    return len(flow(model, next(chunks(next(pieces(x, model)), 2))).of("activation"))


def shallower(model: nn.Module, spot: Spot, seen: Moments | None, x: Any, grow: bool) -> nn.Module:
    """A copy of the model with one spot merged, or an error that says why not."""
    layer = merged(model, spot, seen if spot.bend is not None else None)
    if spot.into and not grow:
        ratio = growth(model.get_submodule(spot.layer), model.get_submodule(spot.into), layer)
        if ratio > 1:
            raise TorchliftError(f"merged, it would take {ratio:.2g} times the multiplications")
    small, lined = copy.deepcopy(model), copy.deepcopy(model)
    spliced(small, spot, layer)
    if spot.bend is not None and seen is not None:
        axis = -1 if isinstance(model.get_submodule(spot.layer), nn.Linear) else 1
        lined.set_submodule(spot.bend.name, Line(*seen.fit(), axis))
    example = next(chunks(next(pieces(x, model)), 32))
    with torch.no_grad():
        want = output(call(lined.eval(), example))
        try:
            got = output(call(small.eval(), example))
        except (AttributeError, TypeError, RuntimeError) as error:
            raise TorchliftError(f"the model's own code needs the module: {error}") from error
    if float((got - want).abs().max()) > 1e-3 * max(1.0, float(want.abs().max())):
        raise TorchliftError("something else in the model takes what lies between")
    return small


def compared(before: nn.Module, after: nn.Module, x: Any) -> tuple[float, float, float]:
    """Relative error, largest difference and agreement of two models' outputs."""
    off, size, largest, same, count = 0.0, 0.0, 0.0, 0, 0
    mode = after.training
    after.eval()
    with torch.no_grad():
        for part in pieces(x, before):
            want: Tensor = output(call(before, part))
            got: Tensor = output(call(after, part))
            off, size = off + float((got - want).square().sum()), size + float(want.square().sum())
            largest = max(largest, float((got - want).abs().max()))
            same += int((got.argmax(-1) == want.argmax(-1)).sum())
            count += want[..., 0].numel()
    after.train(mode)
    return (off / size) ** 0.5 if size else 0.0, largest, same / count
