"""The optimizer a command names."""

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from torchlift.cli.imports import check_keywords
from torchlift.cli.pairs import unknown_name
from torchlift.train.run.names import optimizers


def optimizer_from_flags(
    name: str | None, lr: float | None, options: Mapping[str, Any]
) -> functools.partial[Optimizer] | None:
    """A factory with its options bound; None where nothing was chosen."""
    if name is None and lr is None and not options:
        return None
    by_name = optimizers()
    kind = by_name.get((name or "adamw").lower())
    if kind is None:
        raise unknown_name("--optimizer", str(name), sorted(by_name))
    keywords = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    keywords |= {} if lr is None else {"lr": lr}
    check_keywords(f"--opt for {kind.__name__}", kind, keywords)
    factory = functools.partial(kind, **keywords)
    try:
        factory([torch.nn.Parameter(torch.zeros(1))])
    except (TypeError, ValueError) as error:
        raise ValueError(f"--optimizer {kind.__name__.lower()}: {error}") from error
    return factory
