"""Values of ``--set`` as a field's type wants them; which types no flag can give."""

import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pydantic
import torch

from torchlift.cli.optimizers import optimizer_from_flags
from torchlift.train import until


def type_hints(maker: Callable[..., Any]) -> dict[str, Any]:
    """The fields' types, as far as they can be told."""
    try:
        return typing.get_type_hints(maker)
    except NameError:
        return {}


def convert(who: str, value: Any, kind: Any) -> Any:
    """A TOML value as the field's type wants it: rules and optimizers from their descriptions."""
    described = str(kind)
    if "Rule" in described:
        value = per_phase(value, as_rule)
    elif "Optimizer" in described:
        value = per_phase(
            value, lambda name: optimizer_from_flags(name, None, {}) if isinstance(name, str) else name
        )
    try:
        adapter = pydantic.TypeAdapter[Any](kind, config=pydantic.ConfigDict(arbitrary_types_allowed=True))
        return adapter.validate_python(value)
    except pydantic.ValidationError as error:
        reasons = dict.fromkeys(one["msg"][0].lower() + one["msg"][1:] for one in error.errors())
        raise ValueError(f"{who}: {'; or '.join(reasons)}; got {value!r}") from error
    except pydantic.PydanticUserError:
        return tuple(value) if isinstance(value, list) else value


def per_phase(value: Any, one: Callable[[Any], Any]) -> Any:
    """A value for all phases, or one for each."""
    return (
        tuple(one(item) for item in value)
        if isinstance(value, Sequence) and not isinstance(value, str)
        else one(value)
    )


def as_rule(value: Any) -> Any:
    """``30`` → Epochs(30); ``{patience=12, cap=90}`` → Plateau; ``{grad_norm=1e-3, cap=90}`` → Stationary."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return until.Epochs(value)
    if not isinstance(value, Mapping):
        return value
    kind = until.Stationary if "grad_norm" in value else until.Plateau
    try:
        return kind(**value)
    except TypeError as error:
        raise ValueError(
            "--set until takes epochs, {patience = 12, cap = 90} or {grad_norm = 1e-3, cap = 90}; "
            f"got {dict(value)}"
        ) from error


def is_tensors(kind: Any) -> bool:
    """Whether a type is a tensor, or made of some."""
    return kind is torch.Tensor or any(map(is_tensors, typing.get_args(kind)))
