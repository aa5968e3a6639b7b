"""From a file's content to the model; everything is refused that is not a whole, honest file."""

import json
import struct
import zlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.core.weights import refresh_flat_weights
from torchlift.packed import legacy, sealing, tensors
from torchlift.packed.budget import Budget, PackedError, default_limit
from torchlift.packed.classes import Kind
from torchlift.packed.decoding import inflate
from torchlift.packed.dictionary import DICTIONARY
from torchlift.packed.programs import Program, verify
from torchlift.packed.readers import Reader
from torchlift.packed.vetting import vet

NAME, VERSION, FIRST = b"TLIFT", b"002", b"001"
CODER = 3
"""The second version of the coder may put any number of names into a symbol; the third knows rows with steps
of their own, palettes of int16 by their distances, and headers deflated from a dictionary. It reads the
others'."""
FROM_DICTIONARY = 3
FRONT = struct.Struct("<8sBBHIIIQ")
HEADER = 64 * 2**20
OBJECTS = 80
"""Bytes of memory per byte of JSON, about, when it is parsed and then built into attributes."""


def unpacked(
    data: bytes, classes: Iterable[Kind] = (), limit: int | None = None, *, key: bytes | None = None
) -> nn.Module:
    """The model in a file's content; ``limit`` as in :func:`load`."""
    budget = Budget(default_limit(len(data)) if limit is None else limit)
    budget.take(len(data), "the file")
    if len(data) < FRONT.size + sealing.SIZE or data[:5] != NAME:
        raise PackedError("this is not a torchlift model file.")
    readers = {FIRST: first_version, VERSION: second_version}
    if data[5:8] not in readers:
        known = ", ".join(version.decode() for version in readers)
        raise PackedError(f"version {data[5:8]!r} of the format is not known; this torchlift reads {known}.")
    try:
        return readers[data[5:8]](data, classes, limit, key, budget)
    except PackedError:
        raise
    except (
        Exception
    ) as error:  # what a hostile header leads to has no list; it must not pass for a bug of ours
        raise PackedError(f"the file makes no sense ({type(error).__name__}: {str(error)[:200]}).") from error


def second_version(
    data: bytes, classes: Any, limit: int | None, key: bytes | None, budget: Budget
) -> nn.Module:
    """A file of this version."""
    _, coder, seal, lanes, *lengths = FRONT.unpack_from(data)
    body, view = len(data) - sealing.SIZE, memoryview(data)
    sealing.check_seal(view[:body], data[body:], seal, key)
    if not 1 <= coder <= CODER:
        raise PackedError(f"version {coder} of the coder is not known; this torchlift reads 1 to {CODER}.")
    header, plan, inflated, raw = lengths
    if FRONT.size + header + plan + raw > body:
        raise PackedError("a part is longer than the file.")
    at = FRONT.size
    tree = opened(data[at : at + header], budget, DICTIONARY if coder >= FROM_DICTIONARY else b"")
    at += header
    budget.take(inflated, "the plan")
    numbers = inflate(view[at : at + plan], inflated)
    at += plan
    found = tensors.read(numbers, view[at : at + raw], lanes, view[at + raw : body], budget)
    return built(tree, found, classes, limit, budget)


def first_version(
    data: bytes, classes: Any, limit: int | None, key: bytes | None, budget: Budget
) -> nn.Module:
    """A file of the first version, which had no keys."""
    body, view = len(data) - sealing.SIZE, memoryview(data)
    sealing.check_seal(view[:body], data[body:], sealing.CHECKSUM, key)
    end = 16 + int.from_bytes(data[8:16], "little")
    if end > body:
        raise PackedError("the header is longer than the file.")
    tree = opened(data[16:end], budget)
    return built(tree, legacy.read(tree["tensors"], view[end:body], budget), classes, limit, budget)


def opened(text: bytes, budget: Budget, dictionary: bytes = b"") -> Any:
    """The header, if it is of a size that headers have; it may be deflated from a dictionary."""
    most = min(HEADER, (budget.limit - budget.held) // (OBJECTS + 1))
    engine = zlib.decompressobj(zdict=dictionary)
    try:
        found = engine.decompress(text, max(most, 1))
    except zlib.error as error:
        raise PackedError(f"the header is damaged ({error}).") from error
    if not engine.eof:
        raise PackedError(f"the header is larger than {most} bytes; raise limit= if the file is trusted.")
    budget.take(OBJECTS * len(found), "the header")
    return json.loads(found)


def built(tree: Any, found: Any, classes: Any, limit: int | None, budget: Budget) -> nn.Module:
    """The model from its tree and tensors; layers whose kernels trust their shapes are vetted, programs
    verified."""
    reader = Reader(relaid(found, tree.get("channels_last", []), budget), [Program, *classes], budget)
    model = reader.module(tree["model"])
    for module in reader.modules:
        vet(module)
        if isinstance(module, Program):
            verify(module, limit)
    refresh_flat_weights(model)
    return model


def relaid(found: list[Tensor], last: Any, budget: Budget) -> list[Tensor]:
    """The tensors, those that the header names with their channels last, as they were."""
    found = list(found)
    for number in dict.fromkeys(last):
        if type(number) is not int or not 0 <= number < len(found) or found[number].ndim != 4:
            raise PackedError(f"tensor {number!r} cannot have its channels last.")
        with budget.lend(found[number].numel() * found[number].element_size(), "a tensor"):
            found[number] = found[number].contiguous(memory_format=torch.channels_last)
    return found
