"""The tensors of a model as the three parts of a file: a plan, bytes as they are, and the coder's states and
words."""

import dataclasses
import hashlib
import zlib
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from torchlift.errors import TorchliftError
from torchlift.packed import rans
from torchlift.packed.budget import Budget, PackedError, product
from torchlift.packed.byteflow import Sink, Source
from torchlift.packed.codecs import Form, encode
from torchlift.packed.decoding import Reading, decode
from torchlift.packed.elements import DTYPES, bits_of, tensor_of

NAMES = list(DTYPES)
OBJECT = 1024
"""What a tensor takes beside its entries, about."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """Tensors, written down."""

    plan: bytes
    plan_size: int
    raw: bytes
    lanes: int
    code: bytes

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return len(self.plan) + len(self.raw) + len(self.code)


def write(tensors: list[Tensor]) -> Parts:
    """All tensors, the same content once."""
    plan, raw, segments, size = Sink(), list[bytes](), list[rans.Segment](), 0.0
    known: dict[bytes, int] = {}
    plan.number(len(tensors))
    for number, tensor in enumerate(tensors):
        form = line(tensor, number, known, plan)
        if form is not None:
            plan.bytes(bytes(form.plan.data))
            raw.extend(form.raw)
            segments.extend(form.segments)
            size += form.size
    coded = [segment for segment in segments if segment.says]
    count = sum(segment.symbols.size for segment in coded)
    lanes = rans.lanes_for(size - sum(map(len, raw)), count) if coded else 0
    states, words = rans.encode(coded, lanes) if coded else (np.empty(0, "<u4"), np.empty(0, "<u2"))
    code = states.astype("<u4").tobytes() + words.astype("<u2").tobytes()
    return Parts(zlib.compress(bytes(plan.data), 9), len(plan.data), b"".join(raw), lanes, code)


def line(tensor: Tensor, number: int, known: dict[bytes, int], plan: Sink) -> Form | None:
    """A tensor's type and shape, appended to the plan; its form, or None where it is the same as an earlier
    one."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise TorchliftError(f"save: tensors of {tensor.dtype} have no packed form.")
    bits = bits_of(tensor)
    identity = hashlib.sha256(f"{name}{tuple(tensor.shape)}".encode() + bits.tobytes()).digest()
    earlier = known.setdefault(identity, number)
    if earlier != number:
        plan.number(len(NAMES))
        plan.number(number - earlier)
        return None
    plan.number(NAMES.index(name))
    plan.number(tensor.ndim)
    for dimension in tensor.shape:
        plan.number(dimension)
    return encode(bits, tensor.dtype, rows_of(tensor.shape))


def rows_of(shape: Sequence[int]) -> int:
    """How many rows a tensor has: its first dimension where there are others."""
    return shape[0] if len(shape) > 1 else 0


def read(plan: bytes, raw: memoryview, lanes: int, code: memoryview, budget: Budget) -> list[Tensor]:
    """All tensors again; every one is paid for before it is made."""
    if len(code) < 4 * lanes or (len(code) - 4 * lanes) % 2 or (not lanes and len(code)):
        raise PackedError("the code has an impossible length.")
    states, words = np.frombuffer(code[: 4 * lanes], "<u4"), np.frombuffer(code[4 * lanes :], "<u2")
    decoder = rans.Decoder(states, words)
    reading = Reading(Source(plan), Source(raw), decoder, budget)
    tensors: list[Tensor] = []
    for _ in range(reading.plan.number(len(plan))):
        budget.take(OBJECT, "a tensor")
        tensors.append(read_one(reading, tensors))
    for part in (reading.plan, reading.raw, decoder):
        part.close()
    return tensors


def read_one(reading: Reading, earlier: list[Tensor]) -> Tensor:
    """The next tensor."""
    number = reading.plan.number(len(NAMES))
    if number == len(NAMES):
        back = reading.plan.number(len(earlier))
        if not back:
            raise PackedError("a tensor is the same as itself.")
        found = earlier[-back]
        reading.budget.take(found.numel() * found.element_size(), "a tensor")
        return found.clone()
    kind = DTYPES[NAMES[number]]
    shape = [reading.plan.number() for _ in range(reading.plan.number(64))]
    count = product(shape)
    reading.budget.take(count * kind.itemsize, "a tensor")
    bits = decode(reading, count * max(1, kind.itemsize // 8), kind, rows_of(shape))
    return tensor_of(bits, kind, shape)
