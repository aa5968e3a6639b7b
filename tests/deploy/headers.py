"""Headers of packed files, changed: what a dictionary deflated is inflated with it."""

import json
import zlib
from collections.abc import Callable
from typing import Any

from torchlift.deploy.dictionary import DICTIONARY
from torchlift.deploy.sealing import SIZE, seal
from torchlift.deploy.unpacking import FRONT


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
