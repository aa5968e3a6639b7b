"""Decoded copies of data that is slow to decode."""

import contextlib
import hashlib
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchlift import files


def cache_folder() -> Path:
    """``TORCHLIFT_CACHE``, else the user's cache folder."""
    folder = os.environ.get("TORCHLIFT_CACHE")
    if folder:
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "torchlift"


def fingerprint(sources: Sequence[Path]) -> str:
    """Changes when a source file moves, grows or is written again."""
    facts = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in sources]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def cached(name: str, sources: Sequence[Path], decode: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """``decode()``, or the copy an earlier call left; a cache that cannot be written is done without."""
    path = cache_folder() / f"{name}-{fingerprint(sources)}.npy"
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):  # none yet, or a damaged one
        array = decode()
    with contextlib.suppress(OSError):
        write_cached(path, array)
    return array


def write_cached(path: Path, array: NDArray[Any]) -> None:
    """Save so that no reader ever sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    np.save(content, array)
    files.write_file(path, content.getvalue())
