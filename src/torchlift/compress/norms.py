"""Batch norms: folded into the layer before them where that changes nothing, corrected where they stay.

W ← γ/σ · W,   b ← γ/σ · (b − μ) + β
"""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from torchlift.channels.copies import copied
from torchlift.channels.cuts import Cuts
from torchlift.channels.resizing import CONV, TRANSPOSED
from torchlift.compress.calibration import Calibration
from torchlift.compress.distance import output_error
from torchlift.compress.stream import Hook, listening, run

NORM = nn.modules.batchnorm._BatchNorm  # pyright: ignore[reportPrivateUsage]
EQUAL = 1e-9
"""Relative squared difference of outputs that rounding makes."""


def fold_norms(model: nn.Module, inputs: Any) -> nn.Module:
    """A copy of the model whose batch norms are part of the layers before them, with the same outputs."""
    folded = copied(model).eval()
    pairs = neighbours(folded, inputs)
    for some in ([pairs], [[pair] for pair in pairs]):  # nearly always all at once
        for group in some:
            trial = copied(folded)
            for layer, norm in group:
                fold(trial, layer, norm)
            if output_error(folded, trial, [inputs]) < EQUAL:
                folded = trial
                if group is pairs:
                    return folded
    return folded


def neighbours(model: nn.Module, inputs: Any) -> list[tuple[str, str]]:
    """(layer, batch norm) where the norm is given what the layer returns; each runs once."""
    kinds = (*CONV, *TRANSPOSED, nn.Linear)
    made: dict[int, str] = {}
    held: list[Any] = []
    pairs: list[tuple[str, str]] = []
    calls: dict[str, int] = {}

    def hook(name: str) -> Hook:
        def seen(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            del kwargs
            held.append((args, output))
            calls[name] = calls.get(name, 0) + 1
            if isinstance(layer, kinds):
                made[id(output)] = name
            elif args and id(args[0]) in made:
                pairs.append((made[id(args[0])], name))

        return seen

    names = {n: hook(n) for n, m in model.named_modules() if isinstance(m, (*kinds, NORM))}
    with listening(model, names):
        run(model, inputs)
    owners = [id(m.weight) for m in model.modules() if isinstance(m, kinds)]
    single = [p for p in pairs if calls[p[0]] == calls[p[1]] == 1]
    return [
        p for p in single if owners.count(id(model.get_submodule(p[0]).weight)) == 1 and foldable(model, p[1])
    ]


def foldable(model: nn.Module, norm: str) -> bool:
    """Whether a norm has statistics to fold."""
    return cast(Any, model.get_submodule(norm)).running_mean is not None


def fold(model: nn.Module, layer_name: str, norm_name: str) -> None:
    """Put a norm into the layer before it, and the identity in its place."""
    layer, norm = cast(Any, model.get_submodule(layer_name)), cast(Any, model.get_submodule(norm_name))
    mean, var = norm.running_mean, norm.running_var
    gamma = torch.ones_like(mean) if norm.weight is None else norm.weight
    beta = torch.zeros_like(mean) if norm.bias is None else norm.bias
    if isinstance(layer, nn.Linear):
        layer.weight, layer.bias = fuse_linear_bn_weights(
            layer.weight, layer.bias, mean, var, norm.eps, gamma, beta
        )
    else:
        layer.weight, layer.bias = fuse_conv_bn_weights(
            layer.weight, layer.bias, mean, var, norm.eps, gamma, beta, isinstance(layer, TRANSPOSED)
        )
    model.set_submodule(norm_name, nn.Identity())


def correct_norms(original: nn.Module, work: nn.Module, calibration: Calibration, cuts: Cuts) -> None:
    """Running statistics moved by what the compressed network changed on the calibration data.

    μ ← μ + (mean of x̂ − mean of x),  σ² ← σ² · var x̂ / var x; kept where the outputs come nearer.
    """
    names = [n for n, m in work.named_modules() if isinstance(m, NORM) and foldable(work, n)]
    if not names:
        return
    ours, theirs = (statistics(model, names, calibration) for model in (original, work))
    before = output_error(original, work, calibration)
    saved = {n: (norm_of(work, n).running_mean.clone(), norm_of(work, n).running_var.clone()) for n in names}
    for name in names:
        keep = torch.ones(len(ours[name][0]), dtype=torch.bool)
        keep[cuts.get((f"{name}.running_mean", 0), torch.zeros(0, dtype=torch.long))] = False
        norm, (mean, var) = norm_of(work, name), (part[keep] for part in ours[name])
        if len(mean) == len(norm.running_mean):
            norm.running_mean += (theirs[name][0] - mean).to(norm.running_mean)
            norm.running_var *= (theirs[name][1] / var.clamp(min=1e-12)).clamp(0.1, 10).to(norm.running_var)
    if not output_error(original, work, calibration) < before:
        for name, (mean, var) in saved.items():
            norm_of(work, name).running_mean.copy_(mean)
            norm_of(work, name).running_var.copy_(var)


def norm_of(model: nn.Module, name: str) -> Any:
    """A batch norm by name."""
    return model.get_submodule(name)


def statistics(
    model: nn.Module, names: list[str], calibration: Calibration
) -> Mapping[str, tuple[Tensor, Tensor]]:
    """Mean and variance of what each norm is given, over the calibration data of all processes."""
    sums: dict[str, Tensor] = {}

    def hook(name: str) -> Hook:
        def seen(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            del layer, kwargs, output
            x = args[0].double().transpose(0, 1).flatten(1)
            found = torch.stack([x.sum(1), x.square().sum(1), torch.full_like(x[:, 0], x.shape[1])])
            sums[name] = sums[name] + found if name in sums else found

        return seen

    with listening(model, {name: hook(name) for name in names}):
        for inputs in calibration:
            run(model, inputs)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        for total in sums.values():
            torch.distributed.all_reduce(total)
    means = {name: (s[0] / s[2], s[1] / s[2]) for name, s in sums.items()}
    return {name: (mean, square - mean.square()) for name, (mean, square) in means.items()}
