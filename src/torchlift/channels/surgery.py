"""The surgery carried out: constants folded, norms told what they lost, slices cut, sizes put right."""

from typing import Any, cast

import torch
from torch import Tensor, nn

from torchlift.channels.constant_folding import fold_in
from torchlift.channels.copies import copied
from torchlift.channels.cuts import Cuts, cut
from torchlift.channels.dead_channels import Surgery
from torchlift.channels.follow import Shape, Trace
from torchlift.channels.follow.labels import compressed, varying
from torchlift.channels.follow.rms_norms import rms_form, scaled_rms
from torchlift.channels.layers import CountedLayerNorm
from torchlift.channels.resizing import count_again, countables, is_conv1d


def operate(model: nn.Module, found: Trace, done: Surgery, *, exact: bool = True) -> nn.Module:
    """A copy of the model after the surgery."""
    folded = copied(model)
    fold_in(folded, done.folds)
    adjust_norms(folded, found, done.roots, exact=exact)
    small = cut(folded, done.cuts | made_biases(model, done))
    recount(small, found, done.roots)
    return small


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
