"""Surgery: constants folded, norms told what they lost, slices cut, sizes put right; and whether a model's
own code takes it."""

import dataclasses
from typing import Any, cast

import torch
from torch import Tensor, nn

from torchlift.channels.copies import copied, sharing
from torchlift.channels.couplings import Coupling, couplings
from torchlift.channels.cuts import Cuts, cut, cuts_of, merged
from torchlift.channels.dead_channels import Proof, Verdict
from torchlift.channels.example_inputs import Example, outputs
from torchlift.channels.follow import Shape, Trace
from torchlift.channels.follow.labels import compressed, varying
from torchlift.channels.follow.norms import rms_form, scaled_rms
from torchlift.channels.layers import CountedLayerNorm
from torchlift.channels.resizing import count_again, countables, is_conv1d
from torchlift.core.stored import forget

Folds = dict[str, Tensor]
"""What is added to the bias of a layer, by the layer's name."""

FIXED_SIZE = "the model's own code asks for this size: a number in a view or a split"


@dataclasses.dataclass(frozen=True, eq=False)
class Surgery:
    """What verdicts mean for the tensors."""

    cuts: Cuts
    folds: Folds
    roots: Tensor
    """The labels of all channels that go."""


def surgery(verdicts: list[Verdict], proof: Proof | None = None) -> Surgery:
    """The cuts of all verdicts together; with a ``proof``, the constants that go into biases for them."""
    folds: Folds = {}
    for verdict in [] if proof is None else verdicts:
        assert proof is not None
        for member, labels in proof.readers(verdict.coupling):
            extra = proof.fold(member, labels, verdict.dead)
            if extra is not None:
                name, amount = extra
                folds[name] = folds[name] + amount if name in folds else amount
    cuts = merged(cuts_of(v.coupling.members, v.dead) for v in verdicts)
    roots = [v.coupling.roots[v.dead] for v in verdicts]
    return Surgery(cuts, folds, torch.cat([torch.zeros(0, dtype=torch.int64), *roots]))


def operate(model: nn.Module, found: Trace, done: Surgery, *, exact: bool = True) -> nn.Module:
    """A copy of the model after the surgery."""
    folded = copied(model)
    fold_in(folded, done.folds)
    adjust_norms(folded, found, done.roots, exact=exact)
    small = cut(folded, done.cuts | made_biases(model, done))
    recount(small, found, done.roots)
    return small


def fold_in(model: nn.Module, folds: Folds) -> None:
    """Add to biases, making them where there are none."""
    for name, extra in folds.items():
        layer = model.get_submodule(name)
        weight = layer.get_parameter("weight")
        bias = layer.get_parameter("bias").detach().double() if isinstance(layer.bias, Tensor) else 0.0
        if isinstance(layer.bias, nn.Parameter):
            forget(layer, "bias")
        layer.register_parameter("bias", nn.Parameter((bias + extra).to(weight), weight.requires_grad))


def made_biases(model: nn.Module, done: Surgery) -> Cuts:
    """The cuts of biases that folding made: those of the rows beside them."""
    found: Cuts = {}
    for name in done.folds:
        layer = model.get_submodule(name)
        rows = f"{name}.weight".removeprefix("."), int(is_conv1d(layer))
        if dict(layer.named_parameters()).get("bias") is None and rows in done.cuts:
            found[f"{name}.bias".removeprefix("."), 0] = done.cuts[rows]
    return found


def adjust_norms(model: nn.Module, found: Trace, gone: Tensor, *, exact: bool) -> None:
    """Norms over all channels go on as if the channels that go were there, as zeros."""
    for name, (kind, labels) in {n.module: (n.kind, n.labels) for n in found.norms}.items():
        before = len(labels)
        after = before - int(torch.isin(found.labels.roots(labels), gone).sum())
        norm = model.get_submodule(name)
        if after == before:
            continue
        if kind == "layer":
            if exact and isinstance(norm, nn.LayerNorm):
                model.set_submodule(name, CountedLayerNorm.of(norm, before)) if name else None
        elif kind != "counted":
            form = rms_form(norm)
            assert form is not None
            weight = norm.get_parameter("weight")
            scaled, eps = scaled_rms(
                weight.detach().double(), form.value(norm, weight), before, after, cast(Any, kind)
            )
            forget(norm, "weight")
            norm.weight = nn.Parameter(scaled.to(weight), weight.requires_grad)
            setattr(norm, form.eps, eps)


def recount(model: nn.Module, found: Trace, gone: Tensor) -> None:
    """Numbers of heads and of channels that the model's own code uses, wherever it asked for such a size."""
    asked: dict[str, dict[int, set[int]]] = {}
    dead = torch.zeros(found.labels.size, dtype=torch.bool)
    dead[gone] = True
    held = {name: countables(model.get_submodule(name)) for name in {shape.module for shape in found.shapes}}
    for shape in found.shapes:
        for old, new in sizes(shape, found, dead) if held[shape.module] & set(shape.sizes) else ():
            asked.setdefault(shape.module, {}).setdefault(old, set()).add(new)
    for name, pairs in asked.items():
        clear = {old: min(new - {old}) for old, new in pairs.items() if len(new - {old}) == 1}
        count_again(model.get_submodule(name), clear)


def sizes(shape: Shape, found: Trace, dead: Tensor) -> list[tuple[int, int]]:
    """(old, new) size of each dimension along which channels lie."""
    core = compressed(found.labels.roots(shape.core))
    result: list[tuple[int, int]] = []
    for dim in varying(core):
        flat = core.transpose(0, dim).reshape(core.shape[dim], -1)[:, 0]
        lost = int(dead[flat].sum())
        result.append((shape.sizes[dim], shape.sizes[dim] - lost))
    return result


def runs(model: nn.Module, found: Trace, some: list[Coupling], example: Example) -> bool:
    """Whether the model runs, and gives outputs of the same shapes, without the last channel of couplings."""
    verdicts: list[Verdict] = []
    for coupling in some:
        last = torch.zeros(coupling.channels, dtype=torch.bool)
        last[-1] = True
        verdicts.append(Verdict(coupling, last, last))
    small = operate(model, found, surgery(verdicts)).eval()
    try:
        theirs = outputs(small, [example])
    except Exception:  # a model's own code may raise anything
        return False
    ours = outputs(sharing(model).eval(), [example])
    return [x.shape for x in ours] == [x.shape for x in theirs]


def usable(model: nn.Module, found: Trace, example: Example) -> list[Coupling]:
    """The couplings of two channels or more, blocked where no channel can be cut out of the running model."""
    every = [c for c in couplings(found) if c.channels > 1]
    free = [c for c in every if not c.blocked]
    fine = {id(c) for c in bearing(model, found, free, example)}
    return [c if c.blocked or id(c) in fine else dataclasses.replace(c, blocked=FIXED_SIZE) for c in every]


def bearing(model: nn.Module, found: Trace, some: list[Coupling], example: Example) -> list[Coupling]:
    """The couplings that support a cut, by halving."""
    if not some or runs(model, found, some, example):
        return some
    if len(some) == 1:
        return []
    half = len(some) // 2
    return bearing(model, found, some[:half], example) + bearing(model, found, some[half:], example)
