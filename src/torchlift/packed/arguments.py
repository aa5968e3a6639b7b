"""Arguments of operations, checked before a kernel sees them: kernels trust their callers more than a file
deserves."""

import re
from typing import Any

import torch
from torch import Tensor

from torchlift.packed.operation_rules import MOST, PIECES, RULES, Given, refuse

ENDS = frozenset({"start", "end"})
POSITIVE = frozenset(
    {"kernel_size", "stride", "dilation", "groups", "num_groups", "upscale_factor", "downscale_factor"}
    | {"num_layers", "step", "num_classes"}
)
NATURAL = frozenset(
    {
        "padding",
        "output_padding",
        "output_size",
        "n",
        "k",
        "m",
        "repeats",
        "split_sizes",
        "split_size",
        "chunks",
    }
    | {"steps", "length", "correction", "normalized_shape"}
)
WORDS = {
    "approximate": r"none|tanh",
    "mode": r"constant|reflect|replicate|circular",
    "padding": r"same|valid",
    "indexing": r"ij|xy",
    "rounding_mode": r"floor|trunc",
    "equation": r"[a-zA-Z,. >-]{1,64}",
}
OFF = frozenset({"training", "train", "dropout", "dropout_p", "pin_memory"})


def arithmetic(name: str, args: list[Any], kwargs: Given) -> None:
    """Refuse anything but numbers, and one part of several results."""
    if name == "operator.getitem":
        fine = len(args) == 2 and isinstance(args[0], list | tuple) and type(args[1]) is int
    else:
        fine = 1 <= len(args) <= 2 and all(isinstance(n, int | float) and abs(n) <= 2**62 for n in args)
    if not fine or kwargs:
        raise refuse(name, "something else than numbers")


def check(name: str, function: Any, args: list[Any], kwargs: Given) -> None:
    """Refuse arguments of an aten operation that no exporter writes."""
    schema = function._schema.arguments
    places = [argument.name for argument in schema if not argument.kwarg_only]
    if len(args) > len(places) or not set(kwargs) <= {argument.name for argument in schema}:
        raise refuse(name, "arguments it does not have")
    given = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    given |= dict(zip(places, args, strict=False)) | kwargs
    for key, value in given.items():
        check_value(name, key, value)
    packet = name.split(".")[1]
    if packet in RULES:
        RULES[packet](name, given)


def check_value(name: str, key: str, value: Any) -> None:
    """One argument, by the name that aten has for it."""
    if key in OFF and value:
        raise refuse(name, f"{key}={value}: a stored model is not in training")
    if isinstance(value, list | tuple):
        if len(value) > (PIECES if key in ("tensors", "split_sizes", "indices", "params", "hx") else 64):
            raise refuse(name, f"{len(value)} values for {key}")
        for part in value:
            check_value(name, key, part)
    elif isinstance(value, str) and not (key in WORDS and re.fullmatch(WORDS[key], value)):
        raise refuse(name, f"{key}={value[:40]!r}")
    elif isinstance(value, int) and not isinstance(value, bool):
        least = 1 if key in POSITIVE else 0 if key in NATURAL else -MOST
        if key not in ENDS and not least <= value <= MOST:
            raise refuse(name, f"{key}={value}")
    elif isinstance(value, Tensor) and (value.layout != torch.strided or value.is_quantized):
        raise refuse(name, f"a tensor for {key} that is not dense")
