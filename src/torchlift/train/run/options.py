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


def check_options(given: Mapping[str, Any]) -> None:
    """Numbers that are numbers, functions that are functions."""
    if not (number(given["epochs"]) and given["epochs"] > 0):
        raise TorchliftError(f"epochs is a positive finite number; got {given['epochs']!r}.")
    if given["clip"] is not None and not (number(given["clip"]) and given["clip"] > 0):
        raise TorchliftError(f"clip is the largest norm of a gradient, above 0; got {given['clip']!r}.")
    if not (number(given["save_every"]) and given["save_every"] >= 0):
        raise TorchliftError(f"save_every is a number of seconds, 0 or more; got {given['save_every']!r}.")
    for name, least in (("accumulate", 1), ("patience", 1)):
        value = given[name]
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise TorchliftError(f"{name} is a whole number, {least} or more; got {value!r}.")
    if not isinstance(given["seed"], int) or isinstance(given["seed"], bool):
        raise TorchliftError(f"seed is a whole number; got {given['seed']!r}.")
    for name, call in CALLED.items():
        if given[name] is not None and not callable(given[name]):
            raise TorchliftError(f"{name} is a function, called as {call}; got {given[name]!r}.")


def number(value: Any) -> bool:
    """Whether it is a finite number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
