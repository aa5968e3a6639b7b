"""Packed files as an attacker would write them: changed inside, the seal right again."""

import json
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchlift.packed.dictionary import DICTIONARY
from torchlift.packed.sealing import SIZE, seal
from torchlift.packed.unpacking import FRONT

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))  # the fuzzers' generators


def inflated(data: bytes) -> bytes:
    """The JSON of a file."""
    length = FRONT.unpack_from(data)[4]
    return zlib.decompressobj(zdict=DICTIONARY).decompress(data[FRONT.size : FRONT.size + length])


def reheaded(data: bytes, text: bytes) -> bytes:
    """The file with another deflated header, the seal right again."""
    fields = list(FRONT.unpack_from(data))
    end = FRONT.size + fields[4]
    fields[4] = len(text)
    body = FRONT.pack(*fields) + text + data[end:-SIZE]
    return body + seal(body, None)


def rewritten(data: bytes, change: Callable[[Any], None]) -> bytes:
    """The file with its header changed in place."""
    header = json.loads(inflated(data))
    change(header)
    engine = zlib.compressobj(zdict=DICTIONARY)
    return reheaded(data, engine.compress(json.dumps(header).encode()) + engine.flush())


def replanned(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The file with another plan."""
    fields = list(FRONT.unpack_from(data))
    begin = FRONT.size + fields[4]
    numbers = change(zlib.decompress(data[begin : begin + fields[5]]))
    text, end = zlib.compress(numbers), begin + fields[5]
    fields[5], fields[6] = len(text), len(numbers)
    body = FRONT.pack(*fields) + data[FRONT.size : begin] + text + data[end:-SIZE]
    return body + seal(body, None)


def plant(path: list[Any], value: Any) -> Callable[[Any], None]:
    """Set one place of a header."""

    def change(header: Any) -> None:
        at = header
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return change
