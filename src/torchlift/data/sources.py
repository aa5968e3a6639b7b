"""Where data files are found, and how they are opened."""

import gzip
import importlib
import lzma
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torchlift.errors import printable

OPENERS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.decompress, ".xz": lzma.decompress}
DAMAGED = (EOFError, OSError, lzma.LZMAError, zlib.error)


class LoadError(ValueError):
    """Data that are not available as requested: one printable line that names the way out."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


INSTALLED = Path("/usr/share/datasets")
"""Where Debian's packages put data."""


def locate(who: str, folder: str | Path | None, folders: Sequence[str], file: str) -> Path:
    """The folder that holds ``file``: one of ``folders`` under the data folder, that folder itself, or one of
    ``folders`` where packages put data.

    The data folder is the argument, else the environment variable ``TORCHLIFT_DATA``.
    """
    data_folder = folder or os.environ.get("TORCHLIFT_DATA")
    layout = f"{folders[0]}/{file}"
    root = Path(data_folder or INSTALLED).expanduser()
    for candidate in (*(root / name for name in (*folders, ".")), *(INSTALLED / name for name in folders)):
        if any((candidate / (file + suffix)).exists() for suffix in OPENERS):
            return candidate
    if not data_folder:
        raise LoadError(f"{who}: no data folder; pass one or set TORCHLIFT_DATA to a folder with {layout}")
    raise LoadError(
        f"{who}: {root} has no {layout}; pass another folder or set TORCHLIFT_DATA to one that has"
    )


def variant(folder: Path, file: str) -> Path:
    """The file as it is stored: plain, gzipped or xz-compressed."""
    for suffix in OPENERS:
        path = folder / (file + suffix)
        if path.is_file():
            return path
    raise LoadError(f"{folder} has no {file}, neither plain nor as {file}.gz or {file}.xz")


def read_decompressed(folder: Path, file: str) -> bytes:
    """The bytes of a file, decompressed by what its name ends in."""
    path = variant(folder, file)
    decompress = OPENERS[path.suffix if path.suffix in OPENERS else ""]
    try:
        return decompress(path.read_bytes())
    except DAMAGED as error:
        raise LoadError(f"{path} cannot be read ({error}); fetch it again") from error


def need(who: str, module: str) -> Any:
    """An optional package, imported when it is wanted."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise LoadError(f"{who} needs {module}; install it with: pip install 'torchlift[data]'") from error
