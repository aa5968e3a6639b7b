"""Merging one spot after the other: which, in what order, and checked each time."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from torchlift.errors import TorchliftError
from torchlift.flow.activity import input_pieces, moments
from torchlift.flow.affine import Moments
from torchlift.flow.trace import chunks, flow
from torchlift.loss import call, output
from torchlift.methods.depth.deeper import Deeper
from torchlift.methods.depth.splice import StraightLine, growth, merged_layer, spliced
from torchlift.methods.depth.spots import Spot, spots


@dataclasses.dataclass
class Reduced:
    """A model on the way to fewer layers."""

    model: nn.Module
    depth: tuple[int, int]
    merged: tuple[str, ...] = ()
    kept: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    linearity: dict[str, float] = dataclasses.field(default_factory=dict[str, float])


def reduced(
    model: nn.Module, x: Any, threshold: float = 0.99, layers: int | None = None, grow: bool = False
) -> Reduced:
    """A copy of the model with one spot after the other merged, the most linear first."""
    bends = depth(model, x)
    done, start, banned = Reduced(copy.deepcopy(model), (bends, bends)), bends, dict[str, str]()
    while True:
        open_, reasons = merge_candidates(done.model, x, banned)
        free, bent = [s for s in open_ if s.bend is None], [s for s in open_ if s.bend is not None]
        wanted = bool(bent) and (layers is None or bends > layers)
        seen = moments(done.model, x) if wanted and not free else {}
        done.linearity |= {name: linearity_score(one) for name, one in seen.items()}
        best = max(bent, key=lambda s: done.linearity[s.layer]) if seen else None
        if best is not None and layers is None and done.linearity[best.layer] < threshold:
            best = None
        spot = free[0] if free else best
        if spot is None:
            break
        try:
            done.model = shallower(done.model, spot, seen.get(spot.layer), x, grow)
        except TorchliftError as reason:
            banned[spot.layer] = str(reason)
            continue
        done.merged = (*done.merged, spot.layer)
        bends = depth(done.model, x)
    enough = "" if layers is None else f"{layers} that bend are the target"
    done.kept = reasons | {s.layer: enough or not_linear(seen[s.layer], threshold) for s in bent}
    done.depth = (start, bends)
    done.model = plain_layers(done.model)
    done.model.train(model.training)
    return done


def plain_layers(model: nn.Module) -> nn.Module:
    """The model with inserted layers that were merged as the one layer that is left of each."""
    for name, node in [(n, m) for n, m in model.named_modules() if isinstance(m, Deeper)]:
        left = [m for m in (node.inner, node.activation, node.outer) if not isinstance(m, nn.Identity)]
        if len(left) != 1 or node.residual:
            continue
        if not name:
            return left[0]
        model.set_submodule(name, left[0])
    return model


def merge_candidates(
    model: nn.Module, x: Any, banned: Mapping[str, str]
) -> tuple[list[Spot], dict[str, str]]:
    """What can be merged as far as the structure goes, and why the rest cannot."""
    shape = flow(model, next(chunks(next(input_pieces(x, model)), 32)))
    every = spots(model, shape)
    reasons = {s.layer: banned.get(s.layer) or s.reason for s in every if s.reason or s.layer in banned}
    reasons = {n: why for n, why in reasons.items() if any(s.layer == n and s.bend for s in every)}
    for op in shape.of("activation"):
        if not op.layer:
            reasons[f"{op.name}.{op.function}".strip(".")] = "it bends what is not a layer's own output"
    return [s for s in every if not s.reason and s.layer not in banned], reasons


def linearity_score(seen: Moments) -> float:
    """The least |ρ| of a layer; constant neurons are lines."""
    correlations = seen.correlation[~seen.correlation.isnan()]
    return float(correlations.min()) if correlations.numel() else 1.0


def not_linear(seen: Moments, threshold: float) -> str:
    """Why a layer is not linear enough."""
    correlations = torch.nan_to_num(seen.correlation, nan=2.0)
    return f"neuron {int(correlations.argmin())} bends: |ρ| {float(correlations.min()):.4f} < {threshold}"


def depth(model: nn.Module, x: Any) -> int:
    """How many layers bend: activations in one call."""
    return len(flow(model, next(chunks(next(input_pieces(x, model)), 2))).of("activation"))


def shallower(model: nn.Module, spot: Spot, seen: Moments | None, x: Any, grow: bool) -> nn.Module:
    """A copy of the model with one spot merged, or an error that says why not."""
    layer = merged_layer(model, spot, seen if spot.bend is not None else None)
    if spot.into and not grow:
        ratio = growth(model.get_submodule(spot.layer), model.get_submodule(spot.into), layer)
        if ratio > 1:
            raise TorchliftError(f"merged, it would take {ratio:.2g} times the multiplications")
    small, lined = copy.deepcopy(model), copy.deepcopy(model)
    spliced(small, spot, layer)
    if spot.bend is not None and seen is not None:
        axis = -1 if isinstance(model.get_submodule(spot.layer), nn.Linear) else 1
        lined.set_submodule(spot.bend.name, StraightLine(*seen.fit(), axis))
    example = next(chunks(next(input_pieces(x, model)), 32))
    with torch.no_grad():
        expected = output(call(lined.eval(), example))
        try:
            achieved = output(call(small.eval(), example))
        except (AttributeError, TypeError, RuntimeError) as error:
            raise TorchliftError(f"the model's own code needs the module: {error}") from error
    if float((achieved - expected).abs().max()) > 1e-3 * max(1.0, float(expected.abs().max())):
        raise TorchliftError("something else in the model takes what lies between")
    return small
