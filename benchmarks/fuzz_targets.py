"""Bytes to attack the readers with: each target takes what a fuzzer wrote, and what it stands for.

Seals, digests, compression and checksums would reject nearly all that a fuzzer writes, so each target has two
forms, chosen by the first byte: ``R``, the file as it is; anything else, its inside, framed and sealed by us.
A target answers ``read`` or ``raised``; whatever else happens is a finding.
"""

import io
import json
import os
import struct
import sys
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch

from torchlift.data.arrays import read_arrays
from torchlift.data.sources import LoadError
from torchlift.errors import CheckpointError
from torchlift.packed.budget import Budget, PackedError
from torchlift.packed.file import COMMON, FRONT, MAGIC, Opened
from torchlift.packed.sealing import seal
from torchlift.train.checkpoint import FORMAT, checkpoint_digest, load_checkpoint
from torchlift.train.run.record import NAME, arguments, read_record

warnings.simplefilter("ignore")
LIMIT = 64 * 2**20
SCRATCH = Path(tempfile.gettempdir()) / f"fuzz-{os.getpid()}"
LENGTHS = struct.Struct("<HH")
"""Of the header and the plan, before them: the inside of a packed file."""


def packed(data: bytes) -> str:
    """A packed model: JSON header, plan and streams."""
    if data[:1] != b"R" and len(data) > LENGTHS.size:
        header, plan = LENGTHS.unpack_from(data, 1)
        rest = data[1 + LENGTHS.size :]
        engine = zlib.compressobj(1, zdict=COMMON)
        text = engine.compress(rest[:header]) + engine.flush()
        numbers = zlib.compress(rest[header : header + plan], 1)
        lengths = len(text), len(numbers), len(rest[header : header + plan])
        body = FRONT.pack(MAGIC, 0, *lengths) + text + numbers + rest[header + plan :]
        data = b"R" + body + seal(body, None)
    try:
        file = io.BytesIO(data[1:])
        Opened(file, len(data) - 1, Budget(LIMIT, 2**16 + len(data)), None).model().state_dict()
    except PackedError as error:
        return said(error)
    except (ValueError, TypeError, KeyError, RecursionError):  # load turns these into one line
        return "raised"
    return "read"


def checkpoint(data: bytes) -> str:
    """A checkpoint: its tree beside two tensors, sealed, or the file as it is."""
    if data[:1] == b"R":
        SCRATCH.write_bytes(data[1:])
    else:
        tensors, text = {"a": torch.ones(2), "b": torch.zeros(0, 3).int()}, data[1:].decode(errors="replace")
        meta = {"format": FORMAT, "tree": text, "digest": checkpoint_digest(text, tensors)}
        SCRATCH.write_bytes(safetensors.torch.save(tensors, meta))
    try:
        load_checkpoint(SCRATCH)
    except CheckpointError as error:
        return said(error)
    return "read"


def record(data: bytes) -> str:
    """A run's record: the text as it is, or its settings under a right head."""
    head = b'format = "torchlift-run-1"\nkind = "fit"\nid = "0"\n' if data[:1] != b"R" else b""
    folder = SCRATCH.with_suffix(".run")
    folder.mkdir(exist_ok=True)
    (folder / NAME).write_bytes(head + data[1:])
    try:
        read_record(folder)
        arguments(folder)
    except CheckpointError as error:
        return said(error)
    return "read"


def npz(data: bytes) -> str:
    """Arrays: the archive as it is, or two .npy files, cut at the first byte's place, in a right one."""
    if data[:1] == b"R" or not data:
        content = data[1:]
    else:
        at, buffer = 1 + data[0] * len(data) // 256, io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("x.npy", data[1:at])
            archive.writestr("y.npy", data[at:])
        content = buffer.getvalue()
    path = SCRATCH.with_suffix(".npz")
    path.write_bytes(content)
    try:
        read_arrays(path)
    except LoadError as error:
        return said(error)
    return "read"


def said(error: Exception) -> str:
    """Raised, if in one line."""
    if "\n" in str(error):
        raise AssertionError(f"more than one line: {error}") from error
    return "raised"


TARGETS: dict[str, Callable[[bytes], str]] = {
    "load": packed,
    "checkpoint": checkpoint,
    "record": record,
    "npz": npz,
}


def inside(file: bytes) -> bytes:
    """The inside of a packed file, as a fuzzer changes it."""
    _, _, header, plan, _ = FRONT.unpack_from(file)
    at = FRONT.size
    text = zlib.decompressobj(zdict=COMMON).decompress(file[at : at + header])
    numbers = zlib.decompress(file[at + header : at + header + plan])
    streams = file[at + header + plan : -32]
    return b"I" + LENGTHS.pack(len(text), len(numbers)) + text + numbers + streams


def seeds() -> dict[str, list[bytes]]:
    """What a fuzzer begins with: small right files of every kind."""
    import numpy as np
    from torch import nn

    from torchlift.packed.file import packed as pack
    from torchlift.train.checkpoint import pack as to_json

    torch.manual_seed(0)
    halves = nn.Linear(2, 2)
    with torch.no_grad():
        for parameter in halves.parameters():
            parameter.copy_((parameter * 4).round() / 4)
    files = [pack(model)[0] for model in (halves, nn.Sequential(nn.Linear(2, 1), nn.ReLU()))]
    tree = json.dumps(to_json({"a": [1, None, (2.5,)], "b": {"c": "d"}}, {}, {}))
    arrays, both = io.BytesIO(), []
    for array in (np.arange(12, dtype=np.float32).reshape(6, 2), np.array([0, 1, 0, 1, 1, 0])):
        one = io.BytesIO()
        np.save(one, array)
        both.append(one.getvalue())
    np.savez(arrays, x=np.zeros((6, 2)), y=np.arange(6) % 2)
    text = b'[recipe]\nclass = "torchlift.methods.plain:Plain"\n[recipe.fields]\n[settings]\nepochs = 2\n'
    text += b'schedule = {import = "torch.optim.sgd:SGD"}\nuntil = {list = [1, {none = true}]}\n'
    cut = -(-256 * len(both[0]) // (1 + sum(map(len, both))))
    return {
        "load": [b"R" + files[0], *map(inside, files)],
        "checkpoint": [b"I" + tree.encode(), b'I{"tensor": "a"}', b'I{"dict": [["x", {"tuple": []}]]}'],
        "record": [b"I" + text, b'Rformat = "torchlift-run-1"\nkind = "fit"\nid = "0"\n'],
        "npz": [bytes([cut]) + b"".join(both), b"R" + arrays.getvalue()],
    }


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        print(name, TARGETS[path.parent.name](path.read_bytes()))
