"""Batch norms that stay, corrected for what compression changed before them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.channels.cuts import Cuts
from torchlift.channels.folding import NORM, foldable
from torchlift.compress.calibration import Calibration
from torchlift.compress.distance import output_error
from torchlift.compress.running import Hook, listening, run


def correct_norms(original: nn.Module, work: nn.Module, calibration: Calibration, cuts: Cuts) -> None:
    """Running statistics moved by what the compressed network changed on the calibration data.

    μ ← μ + (mean of x̂ − mean of x),  σ² ← σ² · var x̂ / var x; kept where the outputs come nearer.
    """
    names = [n for n, m in work.named_modules() if isinstance(m, NORM) and foldable(work, n)]
    if not names:
        return
    ours, theirs = (input_statistics(model, names, calibration) for model in (original, work))
    before = output_error(original, work, calibration)
    saved = {n: (norm_of(work, n).running_mean.clone(), norm_of(work, n).running_var.clone()) for n in names}
    for name in names:
        keep = torch.ones(len(ours[name][0]), dtype=torch.bool)
        keep[cuts.get((f"{name}.running_mean", 0), torch.zeros(0, dtype=torch.long))] = False
        norm, (mean, var) = norm_of(work, name), (moment[keep] for moment in ours[name])
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


def input_statistics(
    model: nn.Module, names: list[str], calibration: Calibration
) -> Mapping[str, tuple[Tensor, Tensor]]:
    """Mean and variance of what each norm is given, over the calibration data of all processes."""
    sums: dict[str, Tensor] = {}

    def hook(name: str) -> Hook:
        def seen(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            del layer, kwargs, output
            x = args[0].double().transpose(0, 1).flatten(1)
            totals = torch.stack([x.sum(1), x.square().sum(1), torch.full_like(x[:, 0], x.shape[1])])
            sums[name] = sums[name] + totals if name in sums else totals

        return seen

    with listening(model, {name: hook(name) for name in names}):
        for inputs in calibration:
            run(model, inputs)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        for total in sums.values():
            torch.distributed.all_reduce(total)
    means = {name: (s[0] / s[2], s[1] / s[2]) for name, s in sums.items()}
    return {name: (mean, square - mean.square()) for name, (mean, square) in means.items()}
