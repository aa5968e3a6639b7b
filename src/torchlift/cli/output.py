"""What commands print: text for people, JSON for programs."""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def print_result(as_json: bool, data: Mapping[str, Any], text: str) -> None:
    """The result, in one of its two forms, on stdout."""
    print(json.dumps(jsonable(data), ensure_ascii=False, allow_nan=False) if as_json else text)


def print_note(text: str) -> None:
    """A remark on the side."""
    print(text, file=sys.stderr)


def jsonable(value: Any) -> Any:
    """The value as JSON can hold it: no NaN, no tuples, paths as text."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str | int | bool) or value is None:
        return value
    if isinstance(value, Path):
        return str(value)
    return [jsonable(item) for item in value] if isinstance(value, Sequence) else str(value)


def lines(facts: Mapping[str, object], width: int | None = None) -> str:
    """Names and values in two columns; ``width`` is that of the first."""
    width = width or max(map(len, facts), default=0) + 2
    return "\n".join(f"{name:<{width}}{value}" for name, value in facts.items())


def readable(value: Any) -> str:
    """A number as people read it."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
