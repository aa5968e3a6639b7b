"""Batch norms folded into the layer before them, where that changes nothing.

W ← γ/σ · W,   b ← γ/σ · (b − μ) + β;  a weight on a grid stays on it: its step takes the factor.

:func:`plain_norms` leaves the norms in their places, for a model that has to stay one of its class: each is
the identity then, or adds the shift of a layer without a bias. A file holds constants in next to nothing.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from torchlift.channels.copies import copied
from torchlift.channels.example_inputs import Example, outputs
from torchlift.core.merge import CONVOLUTION, LINEAR, TRANSPOSED, scale
from torchlift.loss import call

NORM = nn.modules.batchnorm._BatchNorm  # pyright: ignore[reportPrivateUsage]
LAYERS = (*CONVOLUTION, *TRANSPOSED, *LINEAR)
EQUAL = 1e-9
"""Relative squared difference of outputs that rounding makes."""


def fold_norms(model: nn.Module, inputs: Example) -> nn.Module:
    """A copy of the model whose batch norms are part of the layers before them, with the same outputs."""
    return rewritten(model, inputs, fold, lambda _: True)


def plain_norms(model: nn.Module, inputs: Example, chosen: Callable[[str], bool]) -> nn.Module:
    """A copy of the model whose batch norms scale nothing: the layers before them do. ``chosen``: whether a
    parameter, by its name, may change."""
    return rewritten(model, inputs, make_plain, chosen)


def rewritten(
    model: nn.Module,
    inputs: Example,
    rewrite: Callable[[nn.Module, str, str], None],
    chosen: Callable[[str], bool],
) -> nn.Module:
    """A copy with every layer and the norm behind it rewritten, where outputs stay the same."""
    now = copied(model).eval()
    pairs = [p for p in neighbours(now, inputs) if all(chosen(f"{name}.weight") for name in p)]
    for some in ([pairs], [[pair] for pair in pairs]):  # nearly always all at once
        for group in some:
            trial = copied(now)
            for layer, norm in group:
                rewrite(trial, layer, norm)
            if same_outputs(now, trial, inputs):
                now = trial
                if group is pairs:
                    return now
    return now


def same_outputs(model: nn.Module, other: nn.Module, inputs: Example) -> bool:
    """Whether all outputs of two models differ by rounding alone."""
    pairs = zip(outputs(model, [inputs]), outputs(other, [inputs]), strict=True)
    return all(
        bool((y - z).double().square().sum() <= EQUAL * y.double().square().sum())
        for y, z in pairs
        if y.is_floating_point()
    )


def neighbours(model: nn.Module, inputs: Example) -> list[tuple[str, str]]:
    """(layer, batch norm) where the norm is given what the layer returns; each runs once."""
    written_by: dict[int, str] = {}
    alive: list[Any] = []  # tensors are told apart by their numbers while they are alive
    pairs: list[tuple[str, str]] = []
    calls: dict[str, int] = {}

    def hook(name: str) -> Any:
        def seen(layer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            alive.append((args, output))
            calls[name] = calls.get(name, 0) + 1
            if isinstance(layer, LAYERS):
                written_by[id(output)] = name
            elif args and id(args[0]) in written_by:
                pairs.append((written_by[id(args[0])], name))

        return seen

    hooked = {n: m for n, m in model.named_modules() if isinstance(m, (*LAYERS, NORM))}
    hooks = [module.register_forward_hook(hook(name)) for name, module in hooked.items()]
    try:
        with torch.no_grad():
            call(model, inputs)
    finally:
        for one in hooks:
            one.remove()
    owners = [id(m.weight) for m in model.modules() if isinstance(m, LAYERS)]
    single = [p for p in pairs if calls[p[0]] == calls[p[1]] == 1]
    return [
        p for p in single if owners.count(id(model.get_submodule(p[0]).weight)) == 1 and foldable(model, p[1])
    ]


def foldable(model: nn.Module, norm: str) -> bool:
    """Whether a norm has statistics to fold."""
    return cast(Any, model.get_submodule(norm)).running_mean is not None


@torch.no_grad()
def fold(model: nn.Module, layer_name: str, norm_name: str) -> None:
    """Put a norm into the layer before it, and the identity in its place."""
    layer, (factor, shift) = cast(Any, model.get_submodule(layer_name)), norm_factors(model, norm_name)
    if layer.bias is None:
        layer.bias = nn.Parameter(torch.zeros_like(shift, dtype=layer.weight.dtype))
    model.set_submodule(layer_name, scale(layer, factor, shift))
    model.set_submodule(norm_name, nn.Identity())


@torch.no_grad()
def make_plain(model: nn.Module, layer_name: str, norm_name: str) -> None:
    """Put a norm's scale into the layer before it, its shift into the layer's bias or its own."""
    layer, norm = cast(Any, model.get_submodule(layer_name)), cast(Any, model.get_submodule(norm_name))
    factor, shift = norm_factors(model, norm_name)
    bare = layer.bias is None
    if bare:
        layer.bias = nn.Parameter(torch.zeros_like(shift, dtype=layer.weight.dtype))
    layer = cast(Any, scale(layer, factor, torch.zeros_like(shift) if bare else shift))
    if bare:
        layer.bias = None
    left = shift if bare else torch.zeros_like(shift)
    norm.running_var.fill_(1 - norm.eps)
    if norm.bias is None:
        norm.running_mean.copy_(-left)
    else:
        norm.running_mean.zero_()
        norm.weight.fill_(1)
        norm.bias.copy_(left)
    model.set_submodule(layer_name, layer)


def norm_factors(model: nn.Module, norm_name: str) -> tuple[Tensor, Tensor]:
    """A norm as scale and shift of its channels."""
    norm = cast(Any, model.get_submodule(norm_name))
    factor: Tensor = torch.rsqrt(norm.running_var + norm.eps)
    factor = factor if norm.weight is None else factor * norm.weight
    shift = -factor * norm.running_mean
    return factor, shift if norm.bias is None else shift + norm.bias
