"""``prune`` as users call it: with calibration data, what is left is refit."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from torchlift.channels.copies import copied
from torchlift.channels.example_inputs import Example
from torchlift.channels.prune import prune_channels as prune_by_criterion
from torchlift.errors import TorchliftError


def prune(
    model: nn.Module,
    example: Example,
    ratio: float | Mapping[str, float] | None = None,
    *,
    calibration: Any = None,
    **options: Any,
) -> nn.Module:
    """A smaller copy of the model: the channels, units and heads worth least are cut, without training.

    With ``calibration``, 64 to 1,024 inputs without labels, channels are chosen by what the layers that read
    them miss, and these are refit (:func:`torchlift.compress`): one ``ratio`` for all groups, or ``macs``;
    ``skip`` is a glob of layers to leave alone. Without, channels go by a criterion, with the options of
    :func:`torchlift.channels.prune.prune_channels`.
    """
    if calibration is None:
        return prune_by_criterion(model, example, ratio, **options)
    from torchlift.compress.call import compress

    others = sorted(set(options) - {"macs", "skip"})
    if others or isinstance(ratio, Mapping):
        name = f"{others[0]}=" if others else "a ratio for each layer"
        raise TorchliftError(
            f"{name} is for prune without calibration=; with it, pass ratio= or macs=, and skip=."
        )
    macs, skip = options.get("macs"), options.get("skip")
    done = compress(
        copied(model).eval(),
        calibration,
        ratio=0.5 if ratio is None and macs is None else ratio,
        macs=macs,
        keep=() if skip is None else skip,
        allocate=False,
        example=example,
        progress=False,
    )
    return done.model.train(model.training)
