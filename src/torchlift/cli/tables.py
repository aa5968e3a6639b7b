"""Writing TOML: plain values first, then tables."""

import json
from collections.abc import Mapping
from typing import Any


def toml_text(content: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    """The content as TOML text; empty tables are left out."""
    plain = {name: value for name, value in content.items() if not isinstance(value, Mapping)}
    tables = {name: value for name, value in content.items() if isinstance(value, Mapping) and value}
    lines = [f"{toml_key(name)} = {inline(value)}" for name, value in plain.items()]
    head = f"\n[{'.'.join(map(toml_key, path))}]\n" if path and (lines or not tables) else ""
    body = "".join(f"{line}\n" for line in lines)
    return head + body + "".join(toml_text(value, (*path, name)) for name, value in tables.items())


def inline(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_key(k)} = {inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(inline, value))}]"
    return json.dumps(value, ensure_ascii=False)


def toml_key(name: str) -> str:
    """A bare key where it can be one."""
    bare = name.replace("-", "").replace("_", "")
    return name if bare.isascii() and bare.isalnum() else json.dumps(name, ensure_ascii=False)
