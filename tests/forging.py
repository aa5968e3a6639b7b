"""Packed files as an attacker would write them: changed inside, the seal right again."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchlift.packed.sealing import SIZE, seal

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))  # the fuzzers' generators

from packed_mutations import assembled as assembled
from packed_mutations import joined, sections


def rewritten(data: bytes, change: Callable[[Any], None]) -> bytes:
    """The file with its header changed in place."""
    fields, text, numbers, streams = sections(data[:-SIZE])
    header = json.loads(text)
    change(header)
    body = joined(fields, json.dumps(header).encode(), numbers, streams)
    return body + seal(body, None)


def replanned(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The file with another plan."""
    fields, text, numbers, streams = sections(data[:-SIZE])
    body = joined(fields, text, change(numbers), streams)
    return body + seal(body, None)


def plant(path: list[Any], value: Any) -> Callable[[Any], None]:
    """Set one place of a header."""

    def change(header: Any) -> None:
        at = header
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return change
