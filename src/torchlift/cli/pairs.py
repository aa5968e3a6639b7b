"""``key=value`` from the command line: values are TOML, a bare word is a string, dots nest."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

TomlTable = dict[str, Any]


def parse_pairs(flag: str, pairs: Iterable[str]) -> TomlTable:
    """``["a.x=1", "y=[2,3]"]`` → ``{"a": {"x": 1}, "y": [2, 3]}``."""
    table: TomlTable = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"{flag} takes key=value, got {pair!r}")
        *path, name = key.strip().split(".")
        table = merged_tables(table, nest(path, {name: parse_value(text)}))
    return table


def parse_value(text: str) -> Any:
    """A TOML value; what is none is taken as the string it is."""
    try:
        return tomllib.loads(f"value = {text.strip()}")["value"] if "\n" not in text else text
    except tomllib.TOMLDecodeError:
        return text.strip()


def nest(path: Iterable[str], value: TomlTable) -> TomlTable:
    """``(["a", "b"], v)`` → ``{"a": {"b": v}}``."""
    for name in reversed(list(path)):
        value = {name: value}
    return value


def merged_tables(below: Mapping[str, Any], above: Mapping[str, Any]) -> TomlTable:
    """Both tables, the second on top; tables inside are merged too."""
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = (
            merged_tables(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
        )
    return merged


def unknown_name(what: str, name: str, choices: Iterable[str], listed: str | None = None) -> ValueError:
    """An error that gives near matches first, then all there are (as ``listed`` puts it)."""
    names = list(choices)
    near = difflib.get_close_matches(name, names, 2)
    hint = f"did you mean {' or '.join(repr(n) for n in near)}? " if near else ""
    have = f"there are: {listed or ', '.join(names)}" if names else "there are none"
    return ValueError(f"{what} {name!r} is not known; {hint}{have}")
