"""Checkpoints: one safetensors file each, atomic, durable, checked, and never unpickled.

Any tree of dicts, lists, tuples, numbers, strings and tensors. Tensors are stored once however often
they appear, under the dotted path of their first place (a state dict's under its own keys, as any reader of
safetensors expects); the rest is JSON in the file's header, with a digest over both. The digest tells damage,
not malice: it is not a signature.
"""

import contextlib
import hashlib
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from torchlift import files
from torchlift.errors import CheckpointError

FORMAT = "torchlift-checkpoint-2"


def save_checkpoint(path: Path, tree: Any) -> None:
    """Write the tree under ``path``: complete or not at all, on the disk when this returns."""
    tensors: dict[str, Tensor] = {}
    text = json.dumps(pack(tree, tensors, {}))
    meta = {"format": FORMAT, "tree": text, "digest": checkpoint_digest(text, tensors)}
    write_durable(path, safetensors.torch.save(tensors, meta))


def load_checkpoint(path: Path) -> Any:
    """The tree saved under ``path``; a damaged or foreign file is an error that says what to do."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            meta = file.metadata() or {}
            # Copies begin where torch aligns them, not anywhere in a file: products round by where they lie.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  (not a dict)
    except (safetensors.SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} is damaged ({error}): delete it to go on from the one before."
        ) from error
    if meta.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a {FORMAT} file: it is from another version or program.")
    try:
        if meta["digest"] != checkpoint_digest(meta["tree"], tensors):
            raise ValueError("its digest differs")
        return unpack(json.loads(meta["tree"]), tensors)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error) if str(error) == "its digest differs" else f"{type(error).__name__} in its tree"
        raise CheckpointError(
            f"{path} is damaged ({reason}): delete it to go on from the one before."
        ) from error


def write_durable(path: Path, text: bytes) -> None:
    """Atomic and durable; a disk that does not take it is a one-line error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"cannot write {path} ({error.strerror}): choose another folder.") from error
    with disk_errors(path):
        files.write_file(path, text)


@contextlib.contextmanager
def disk_errors(path: Path) -> Generator[None]:
    """A disk that does not take what is written to ``path``, or beside it, is a one-line error."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{error.filename or path}: {error.strerror or error}.") from error


def checkpoint_digest(text: str, tensors: dict[str, Tensor]) -> str:
    """A checksum over the header and the name, dtype, shape and every byte of every tensor."""
    total = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(repr((name, str(tensor.dtype), tuple(tensor.shape))).encode())
        total.update(content(tensor))
    return total.hexdigest()


def content(tensor: Tensor) -> memoryview:
    """A tensor's bytes, in order, wherever it lives."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def pack(tree: Any, tensors: dict[str, Tensor], seen: dict[tuple[Any, ...], str], path: str = "") -> Any:
    """JSON for the tree; tensors move to ``tensors``, under one name however often they appear."""

    def recurse(child: Any, key: object = "") -> Any:
        return pack(child, tensors, seen, f"{path}.{key}" if path else str(key))

    if isinstance(tree, Tensor):
        same = (tree.data_ptr(), tree.dtype, tuple(tree.shape), tuple(tree.stride()), tree.device)
        name = seen.get(same) if tree.numel() else None
        if name is None:
            name = seen[same] = path if path and path not in tensors else f"{path}#{len(tensors)}"
            tensors[name] = tree.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(tree, dict):
        return {"dict": [[recurse(k), recurse(v, k)] for k, v in tree.items()]}
    if isinstance(tree, tuple | list):
        kind = "tuple" if isinstance(tree, tuple) else "list"
        return {kind: [recurse(child, number) for number, child in enumerate(tree)]}
    if tree is None or isinstance(tree, str | bool | int | float):
        return tree
    raise CheckpointError(f"a checkpoint cannot hold a {type(tree).__name__}: {tree!r:.60}.")


def unpack(packed: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of :func:`pack`."""
    if not isinstance(packed, dict):
        return packed
    ((kind, content),) = packed.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {unpack(k, tensors): unpack(v, tensors) for k, v in content}
    if kind not in ("tuple", "list"):
        raise ValueError(f"no kind {kind}")
    children = [unpack(child, tensors) for child in content]
    return tuple(children) if kind == "tuple" else children
