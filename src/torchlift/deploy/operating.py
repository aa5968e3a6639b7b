"""The surgery carried out: constants folded, norms told what they lost, slices cut, sizes put right."""

import copy
from typing import Any, cast

import torch
from torch import Tensor, nn

from torchlift.deploy.cuts import cut
from torchlift.deploy.dead import Surgery
from torchlift.deploy.folding import fold_in
from torchlift.deploy.follow import Shape, Trace
from torchlift.deploy.follow.labels import varying
from torchlift.deploy.follow.rms import rms_form, scaled_rms
from torchlift.deploy.layers import CountedLayerNorm
from torchlift.deploy.resizing import count_again


def operate(model: nn.Module, found: Trace, done: Surgery, *, exact: bool = True) -> nn.Module:
    """A copy of the model after the surgery."""
    folded = copy.deepcopy(model)
    fold_in(folded, done.folds)
    adjust_norms(folded, found, done.roots, exact=exact)
    small = cut(folded, done.cuts)
    recount(small, found, done.roots)
    return small


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
        else:
            form = rms_form(norm)
            assert form is not None
            weight = norm.get_parameter("weight")
            scaled, eps = scaled_rms(
                weight.detach().double(), form.value(norm, weight), before, after, cast(Any, kind)
            )
            norm.weight = nn.Parameter(scaled.to(weight), weight.requires_grad)
            setattr(norm, form.eps, eps)


def recount(model: nn.Module, found: Trace, gone: Tensor) -> None:
    """Numbers of heads and of channels that the model's own code uses, wherever it asked for such a size."""
    asked: dict[tuple[str, int], set[int]] = {}
    for shape in found.shapes:
        for old, new in sizes(shape, found, gone):
            asked.setdefault((shape.module, old), set()).add(new)
    for (name, old), new in asked.items():
        changed = new - {old}
        if len(changed) == 1:
            count_again(model, name, old, changed.pop())


def sizes(shape: Shape, found: Trace, gone: Tensor) -> list[tuple[int, int]]:
    """(old, new) size of each dimension along which channels lie."""
    core = found.labels.roots(shape.core)
    result: list[tuple[int, int]] = []
    for dim in varying(core):
        flat = core.transpose(0, dim).flatten(1)[:, 0]
        lost = int(torch.isin(flat, gone).sum())
        result.append((shape.sizes[dim], shape.sizes[dim] - lost))
    return result
