"""The numbers and functions that ``fit`` takes, looked at before anything is done with them."""

import math
from collections.abc import Mapping
from typing import Any

from torchlift.errors import TorchliftError

CALLED = {
    "augment": "augment(x, generator) -> x",
    "log": "log(problem) -> numbers by name",
    "listener": "listener(row)",
}
"""How fit calls what it is given."""


def check_options(arguments: Mapping[str, Any]) -> None:
    """Numbers that are numbers, functions that are functions."""
    if not (is_number(arguments["epochs"]) and arguments["epochs"] > 0):
        raise TorchliftError(f"epochs is a positive finite number; got {arguments['epochs']!r}.")
    if arguments["clip"] is not None and not (is_number(arguments["clip"]) and arguments["clip"] > 0):
        raise TorchliftError(f"clip is the largest norm of a gradient, above 0; got {arguments['clip']!r}.")
    if not (is_number(arguments["save_every"]) and arguments["save_every"] >= 0):
        raise TorchliftError(
            f"save_every is a number of seconds, 0 or more; got {arguments['save_every']!r}."
        )
    for name, least in (("accumulate", 1), ("patience", 1)):
        value = arguments[name]
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise TorchliftError(f"{name} is a whole number, {least} or more; got {value!r}.")
    if not isinstance(arguments["seed"], int) or isinstance(arguments["seed"], bool):
        raise TorchliftError(f"seed is a whole number; got {arguments['seed']!r}.")
    for name, call in CALLED.items():
        if arguments[name] is not None and not callable(arguments[name]):
            raise TorchliftError(f"{name} is a function, called as {call}; got {arguments[name]!r}.")


def is_number(value: Any) -> bool:
    """Whether it is a finite number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
