"""Packed files as an attacker would write them: damaged, or changed inside and sealed anew."""

import copy
import json
import random
import struct
import zlib
from typing import Any

import torch
from torch import nn

from torchlift.models import GPT
from torchlift.packed.budget import PackedError
from torchlift.packed.dictionary import DICTIONARY
from torchlift.packed.file import packed
from torchlift.packed.sealing import SIZE, seal
from torchlift.packed.unpacking import FIRST, FRONT, unpacked

VALUES = [
    0,
    1,
    -1,
    2,
    7,
    255,
    2**16,
    2**31,
    2**40,
    2**63,
    1e308,
    True,
    None,
    "",
    "x",
    [],
    {},
    [[]],
    "float32",
]
VALUES += [
    {"same_as": 0},
    {"tuple": [1, 1]},
    {"value": 0},
    {"dtype": "float64"},
    {"device": "meta"},
    {"tensor": 0},
]
VALUES += [
    "torch.nn.modules.container:Sequential",
    "torch.nn.modules.rnn:LSTM",
    "os:system",
    "torchlift.core.node:Dial",
]
VALUES += [
    "aten.as_strided.default",
    "aten.zeros.default",
    "aten.expand.default",
    "aten.view.default",
    "aten.save",
]
VALUES += ["aten.repeat.default", "aten.sparse_coo_tensor.size", "aten.embedding.default", "aten.lstm.input"]


def models() -> list[tuple[nn.Module, Any]]:
    """Small models of many kinds, and graphs of some."""
    torch.manual_seed(0)
    conv = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    image = torch.randn(2, 1, 4, 4)
    grid = copy.deepcopy(conv)
    with torch.no_grad():
        for parameter in grid.parameters():
            parameter.copy_((parameter * 8).round() / 8 * 0.37)
    sparse = nn.Linear(40, 40)
    with torch.no_grad():
        sparse.weight[torch.rand(40, 40) < 0.9] = 0
    large = nn.Linear(80, 80, bias=False)
    with torch.no_grad():
        large.weight.copy_((large.weight * 2000).round() / 2000)
    rows, half = by_rows()
    lstm = nn.Sequential(nn.LSTM(3, 4))
    attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    text = torch.randint(20, (2, 8))
    return [
        (conv, None), (grid, None), (sparse, None), (large, None), (lstm, None), (attention, None),
        (GPT(20, 8, 8, 1, 2), None), (grid, image), (lstm, torch.randn(5, 2, 3)), (GPT(20, 8, 8, 1, 2), text),
        (rows, None), (half, None), (rows, torch.randn(2, 40)),
    ]  # fmt: skip


def by_rows() -> tuple[nn.Module, nn.Module]:
    """Rows on grids of their own: three values, eight bits, few that are not zero; the same in half
    precision."""
    layers = [nn.Linear(40, 30), nn.Linear(30, 20), nn.Linear(20, 40)]
    half = nn.Linear(30, 9).to(torch.bfloat16)
    with torch.no_grad():
        for layer, levels in zip(layers, (1, 127, 7), strict=True):
            step = layer.weight.abs().amax(1, keepdim=True) / levels
            layer.weight.copy_((layer.weight / step).round() * step + 0.0)
        layers[2].weight[torch.rand(40, 20) < 0.8] = 0
        half.weight.copy_((half.weight * 20).round() * torch.rand(9, 1).to(torch.bfloat16) + 0.0)
    return nn.Sequential(*layers), half


class Mutator:
    """Files by seed: the same seed is the same file."""

    def __init__(self, older: tuple[bytes, ...] = ()) -> None:
        made = [(packed(model, example), example) for model, example in models()]
        self.files = [*made, *((data, None) for data in older)]

    def use_all(self, limit: int) -> None:
        """Load and call every file as it is."""
        for data, example in self.files:
            used(unpacked(data, limit=limit), example)

    def attempt(self, seed: int, limit: int) -> str:
        """Load one mutated file, use what comes out; what happened in a word."""
        return self.labeled(seed, limit).partition(": ")[2]

    def labeled(self, seed: int, limit: int) -> str:
        """What happened, after how the file was changed: ``damaged: …`` or ``resealed: …``."""
        rng = random.Random(seed)
        data, example = rng.choice(self.files)
        damaged = rng.random() < 0.3
        changed = damage(data, rng) if damaged else reseal(data, rng)
        kind = "damaged" if damaged else "resealed"
        try:
            model = unpacked(changed, limit=limit)
        except PackedError:
            return f"{kind}: refused"
        if damaged and changed != data:
            return f"{kind}: wrong load"
        return f"{kind}: {used(model, example)}"


def used(model: nn.Module, example: Any) -> str:
    """Walk through a loaded model, and call it if it is a graph."""
    try:
        model.eval().state_dict()
        copy.deepcopy(model)
        if example is not None:
            with torch.no_grad():
                model(example)
    except Exception:  # a mutated model may fail in any way when it runs; it must not crash
        return "loaded, does not run"
    return "loaded"


def damage(data: bytes, rng: random.Random) -> bytes:
    """Truncated, flipped or spliced, the seal left as it is."""
    if not data:
        return data
    at, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    kind = rng.randrange(4)
    if kind == 0:
        return data[:at]
    if kind == 1:
        place = min(at, len(data) - 1)
        return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
    if kind == 2:
        return data[:at] + data[end:]
    return data[:at] + rng.randbytes(end - at) + data[end:]


def reseal(data: bytes, rng: random.Random) -> bytes:
    """Changed inside, the seal right again."""
    body = data[:-SIZE]
    change = rng.choice([flip, front, header, header, header, plan, plan])
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        body = change(body, rng)
    return body + seal(body, None)


def flip(body: bytes, rng: random.Random) -> bytes:
    """Some byte."""
    return damage(body, rng)


def front(body: bytes, rng: random.Random) -> bytes:
    """A number of the first 32 bytes."""
    if body[5:8] == FIRST or len(body) < FRONT.size:
        return damage(body[:16], rng) + body[16:]
    fields = list(FRONT.unpack_from(body))
    at = rng.randrange(1, len(fields))
    fields[at] = rng.choice([0, 1, fields[at] + 1, max(0, fields[at] - 1), 255, fields[at] // 2])
    try:
        return FRONT.pack(*fields) + body[FRONT.size :]
    except struct.error:
        return body


def parts(body: bytes) -> tuple[int, int, int]:
    """Where header and plan lie: the first begins, the second begins, the second ends."""
    if body[5:8] == FIRST:
        end = 16 + int.from_bytes(body[8:16], "little")
        return 16, end, end
    lengths = FRONT.unpack_from(body)[4:]
    return FRONT.size, FRONT.size + lengths[0], FRONT.size + lengths[0] + lengths[1]


def header(body: bytes, rng: random.Random) -> bytes:
    """A node of the JSON tree, replaced, removed or doubled."""
    begin, end, _ = parts(body)
    try:
        tree = json.loads(inflated(body[begin:end]))
    except (zlib.error, ValueError):
        return damage(body, rng)
    change_node(tree, rng)
    text = deflated(json.dumps(tree).encode(), rng)
    if body[5:8] == FIRST:
        return body[:8] + len(text).to_bytes(8, "little") + text + body[end:]
    fields = list(FRONT.unpack_from(body))
    fields[4] = len(text)
    return FRONT.pack(*fields) + text + body[end:]


def inflated(text: bytes) -> bytes:
    """A header's JSON; older ones have no dictionary."""
    return zlib.decompressobj(zdict=DICTIONARY).decompress(text)


def deflated(text: bytes, rng: random.Random) -> bytes:
    """The same back, with and without the dictionary."""
    engine = zlib.compressobj(zdict=DICTIONARY) if rng.random() < 0.5 else zlib.compressobj()
    return engine.compress(text) + engine.flush()


def change_node(tree: Any, rng: random.Random) -> None:
    """Replace, remove or double one place of a tree."""
    places = list(walk(tree))
    if not places:
        return
    holder, key = rng.choice(places)
    kind = rng.random()
    if kind < 0.5:
        old = holder[key]
        number = type(old) is int
        holder[key] = (
            old + rng.choice([-1, 1, 100, 2**33]) if number and rng.random() < 0.5 else rng.choice(VALUES)
        )
    elif kind < 0.7:
        other, name = rng.choice(places)
        holder[key] = copy.deepcopy(other[name])
    elif kind < 0.85 and isinstance(holder, list):
        holder.extend(copy.deepcopy(holder[:1]) * rng.choice([1, 3]))
    else:
        del holder[key]


def walk(tree: Any) -> list[tuple[Any, Any]]:
    """Every place below a node, as its holder and key."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    return [place for key in keys for place in [(tree, key), *walk(tree[key])]]


def plan(body: bytes, rng: random.Random) -> bytes:
    """A byte of the inflated plan, or the code after it."""
    _, begin, end = parts(body)
    if body[5:8] == FIRST:
        return body[:end] + damage(body[end:], rng)
    try:
        numbers = zlib.decompress(body[begin:end])
    except zlib.error:
        return damage(body, rng)
    if rng.random() < 0.2:
        return body[:end] + damage(body[end:], rng)
    numbers = damage(numbers, rng) if numbers else b""
    text = zlib.compress(numbers)
    fields = list(FRONT.unpack_from(body))
    fields[5], fields[6] = len(text), len(numbers)
    return FRONT.pack(*fields) + body[FRONT.size : begin] + text + body[end:]
