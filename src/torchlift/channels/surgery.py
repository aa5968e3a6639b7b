"""Surgery: constants folded, norms told what they lost, slices cut, sizes put right; and whether a model's
own code takes it."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from torchlift.channels.copies import copied, sharing
from torchlift.channels.couplings import Coupling, couplings
from torchlift.channels.cuts import Cuts, cut, cuts_of, merged, rescale, slice_norms, without_slices
from torchlift.channels.dead_channels import Decision, Proof
from torchlift.channels.example_inputs import Example, Output, PinnedOutput, outputs
from torchlift.channels.follow import ModuleSizes, Trace
from torchlift.channels.follow.labels import compressed_labels, varying
from torchlift.channels.follow.norms import is_response_norm, rms_form, scaled_rms
from torchlift.channels.layers import CountedGroupNorm, CountedLayerNorm, CountedResponseNorm
from torchlift.channels.resizing import count_again, countables, is_conv1d
from torchlift.core.stored import forget

Folds = dict[str, Tensor]
"""What is added to the bias of a layer, by the layer's name."""

FIXED_SIZE = "the model's own code asks for this size: a number in a view or a split"


@dataclasses.dataclass(frozen=True, eq=False)
class Surgery:
    """What decisions mean for the tensors."""

    cuts: Cuts
    folds: Folds
    roots: Tensor
    """The labels of all channels that go."""


def surgery(decisions: list[Decision], proof: Proof | None = None) -> Surgery:
    """The cuts of all decisions together; with a ``proof``, the constants that go into biases for them."""
    folds: Folds = {}
    for decision in [] if proof is None else decisions:
        assert proof is not None
        for member, labels in proof.readers(decision.coupling):
            extra = proof.fold(member, labels, decision.dead)
            if extra is not None:
                name, amount = extra
                folds[name] = folds[name] + amount if name in folds else amount
    cuts = merged(cuts_of(v.coupling.members, v.dead) for v in decisions)
    roots = [v.coupling.roots[v.dead] for v in decisions]
    return Surgery(cuts, folds, torch.cat([torch.zeros(0, dtype=torch.int64), *roots]))


def apply_surgery(model: nn.Module, trace: Trace, done: Surgery, *, exact: bool = True) -> nn.Module:
    """A copy of the model after the surgery."""
    folded = copied(model)
    fold_in(folded, done.folds)
    adjust_norms(folded, trace, done.roots, exact=exact)
    before = {scaled: slice_norms(folded, scaled) for scaled in trace.scaled}
    small = cut(folded, done.cuts | new_biases(model, done))
    for scaled, norms in before.items():
        gone = done.cuts.get((scaled.v, scaled.dim))
        rescale(small, scaled, norms if gone is None else without_slices(norms, 0, gone))
    recount(small, trace, done.roots)
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


def new_biases(model: nn.Module, done: Surgery) -> Cuts:
    """The cuts of biases that folding made: those of the rows beside them."""
    cuts: Cuts = {}
    for name in done.folds:
        layer = model.get_submodule(name)
        rows = f"{name}.weight".removeprefix("."), int(is_conv1d(layer))
        if dict(layer.named_parameters()).get("bias") is None and rows in done.cuts:
            cuts[f"{name}.bias".removeprefix("."), 0] = done.cuts[rows]
    return cuts


def adjust_norms(model: nn.Module, trace: Trace, gone: Tensor, *, exact: bool) -> None:
    """Norms over all channels go on as if the channels that go were there, as zeros."""
    for name, (kind, labels) in {n.module: (n.kind, n.labels) for n in trace.norms}.items():
        before = len(labels)
        after = before - int(torch.isin(trace.labels.roots(labels), gone).sum())
        norm = model.get_submodule(name)
        if after == before:
            continue
        if kind in ("layer", "group", "response"):
            if exact and name:
                model.set_submodule(name, counted_norm(norm, before))
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


def counted_norm(norm: nn.Module, count: int) -> nn.Module:
    """A norm over all channels that remembers how many there were."""
    if isinstance(norm, nn.LayerNorm):
        return CountedLayerNorm.of(norm, count)
    if isinstance(norm, nn.GroupNorm):
        return CountedGroupNorm.of(norm, count)
    return CountedResponseNorm.of(norm, count) if is_response_norm(norm) else norm


def recount(model: nn.Module, trace: Trace, gone: Tensor) -> None:
    """Numbers of heads and of channels that the model's own code uses, wherever it reads such a size."""
    changes: dict[str, dict[int, set[int]]] = {}
    dead = torch.zeros(trace.labels.size, dtype=torch.bool)
    dead[gone] = True
    numbers_of = {
        name: countables(model.get_submodule(name)) for name in {shape.module for shape in trace.shapes}
    }
    for shape in trace.shapes:
        for old, new in (
            dimension_sizes(shape, trace, dead) if numbers_of[shape.module] & set(shape.sizes) else ()
        ):
            changes.setdefault(shape.module, {}).setdefault(old, set()).add(new)
    for name, pairs in changes.items():
        clear = {old: min(new - {old}) for old, new in pairs.items() if len(new - {old}) == 1}
        count_again(model.get_submodule(name), clear)


def dimension_sizes(shape: ModuleSizes, trace: Trace, dead: Tensor) -> list[tuple[int, int]]:
    """(old, new) size of each dimension along which channels lie."""
    core = compressed_labels(trace.labels.roots(shape.core))
    result: list[tuple[int, int]] = []
    for dim in varying(core):
        flat = core.transpose(0, dim).reshape(core.shape[dim], -1)[:, 0]
        lost = int(dead[flat].sum())
        result.append((shape.sizes[dim], shape.sizes[dim] - lost))
    return result


def runs(
    model: nn.Module,
    trace: Trace,
    some: list[Coupling],
    example: Example,
    output: Output | Literal["all"] = "all",
) -> bool:
    """Whether the model runs, and gives outputs of the same shapes, without the last channel of couplings."""
    decisions: list[Decision] = []
    for coupling in some:
        last = torch.zeros(coupling.channels, dtype=torch.bool)
        last[-1] = True
        decisions.append(Decision(coupling, last, last))
    pair = sharing(model).eval(), apply_surgery(model, trace, surgery(decisions)).eval()
    pair = pair if output == "all" else tuple(PinnedOutput(one, output) for one in pair)
    try:
        theirs = outputs(pair[1], [example])
    except Exception:  # a model's own code may raise anything
        return False
    ours = outputs(pair[0], [example])
    return [x.shape for x in ours] == [x.shape for x in theirs]


def usable(
    model: nn.Module, trace: Trace, example: Example, output: Output | Literal["all"] = "all"
) -> list[Coupling]:
    """The couplings of two channels or more, blocked where no channel can be cut out of the running model."""
    every = [c for c in couplings(trace) if c.channels > 1]
    free = [c for c in every if not c.blocked]
    fine = {id(c) for c in supported_together(free, lambda some: runs(model, trace, some, example, output))}
    return [c if c.blocked or id(c) in fine else dataclasses.replace(c, blocked=FIXED_SIZE) for c in every]


def supported_together(some: list[Coupling], fine: Callable[[list[Coupling]], bool]) -> list[Coupling]:
    """The couplings that support a cut, and those that do with all others of their width: a model's code
    may take the width of one map for that of another."""
    good = supporting(some, fine)
    for width in sorted({c.channels for c in some if c not in good}):
        alike = [c for c in some if c.channels == width and c not in good]
        if len(alike) > 1 and fine([*good, *alike]):
            good = [*good, *alike]
    return good


def supporting(some: list[Coupling], fine: Callable[[list[Coupling]], bool]) -> list[Coupling]:
    """The couplings that support a cut, by halving."""
    if not some or fine(some):
        return some
    if len(some) == 1:
        return []
    half = len(some) // 2
    return supporting(some[:half], fine) + supporting(some[half:], fine)
