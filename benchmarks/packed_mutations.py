"""Packed files as an attacker would write them: damaged, changed inside and sealed again, or composed of any
permitted modules with any arguments."""

import copy
import io
import json
import random
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchlift.channels.layers import CountedLayerNorm
from torchlift.core.stored import store
from torchlift.deploy import prune
from torchlift.models import GPT, MLP
from torchlift.packed.budget import Budget, PackedError
from torchlift.packed.file import COMMON, FRONT, MAGIC, Opened, packed
from torchlift.packed.into import sizes_of
from torchlift.packed.layers import LAYERS, build
from torchlift.packed.sealing import SIZE, seal
from torchlift.packed.tensors import Item, write_items
from torchlift.packed.trees import slots

SEALED = 0
NUMBERS = [0, 1, -1, 2, 3, 4, 7, 8, 16, 64, 255, 1000, 4096, 65_535, 65_536, 2**24, 2**31, 2**40, 2**63]
VALUES: list[Any] = [
    *NUMBERS,
    0.5,
    1e-5,
    1e308,
    -1e9,
    True,
    False,
    None,
    "",
    "x",
    [],
    {},
    [[]],
    [1, 1],
    [3, 3, 3],
]
VALUES += ["same", "valid", "reflect", "circular", "bicubic", "nearest", "trilinear", "tanh", {"same": 0}]
VALUES += [{"kind": "LSTM", "args": {"input_size": 3, "hidden_size": 4}}, *LAYERS]
USUAL: dict[str, list[Any]] = {
    "in_features": [3, 4, 8],
    "out_features": [3, 4, 8, 4096],
    "in_channels": [3, 4],
    "out_channels": [4, 8, 4096],
    "kernel_size": [1, 2, 3, [3, 3], 50],
    "stride": [1, 2],
    "padding": [0, 1, [1, 1], [2, 2, 2, 2], [1, 1, 1, 1, 1, 1]],
    "dilation": [1, 2],
    "groups": [1, 2],
    "num_features": [3, 4, 8],
    "num_channels": [4, 8],
    "num_groups": [1, 2],
    "normalized_shape": [[8], 8, 4, 3],
    "num_embeddings": [10, 1000],
    "embedding_dim": [8, 4],
    "input_size": [3, 8],
    "hidden_size": [4, 8, 300],
    "num_layers": [1, 2, 64],
    "embed_dim": [8],
    "num_heads": [2, 4],
    "d_model": [8],
    "nhead": [2, 4],
    "dim_feedforward": [16, 4096],
    "output_size": [1, 2, 7, 1000, 65_535],
    "scale_factor": [2, 0.5, 100, 65_535],
    "size": [4, 16, 1000, 65_535],
    "unflattened_size": [[2, 2], [1, 8], [2, -1]],
    "dim": [1, -1, 0],
    "upscale_factor": [2, 3],
    "downscale_factor": [2],
    "num_parameters": [1, 4],
    "value": [0.0],
    "threshold": [0.1],
    "kdim": [8],
    "vdim": [8],
    "start_dim": [1, 0],
    "end_dim": [-1],
    "padding_idx": [None, 1],
}
NEEDED = {
    "Linear": ("in_features", "out_features"),
    "LayerNorm": ("normalized_shape",),
    "RMSNorm": ("normalized_shape",),
    "GroupNorm": ("num_groups", "num_channels"),
    "Embedding": ("num_embeddings", "embedding_dim"),
    "Unflatten": ("dim", "unflattened_size"),
    "PixelShuffle": ("upscale_factor",),
    "ChannelShuffle": ("groups",),
    "PixelUnshuffle": ("downscale_factor",),
    "Threshold": ("threshold", "value"),
    "MultiheadAttention": ("embed_dim", "num_heads"),
    "TransformerEncoderLayer": ("d_model", "nhead"),
    "TransformerEncoder": ("d_model", "nhead", "num_layers"),
}
PREFIXES = {
    "Conv": ("in_channels", "out_channels", "kernel_size"),
    "BatchNorm": ("num_features",),
    "InstanceNorm": ("num_features",),
    "MaxPool": ("kernel_size",),
    "AvgPool": ("kernel_size",),
    "Adaptive": ("output_size",),
    "ConstantPad": ("padding", "value"),
    "ZeroPad": ("padding",),
    "ReflectionPad": ("padding",),
    "ReplicationPad": ("padding",),
    "LSTM": ("input_size", "hidden_size"),
    "GRU": ("input_size", "hidden_size"),
    "RNN": ("input_size", "hidden_size"),
}


class RootNorm(nn.Module):
    """A root-mean-square norm, written as models write it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(width)), 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x over the root of its mean square."""
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


class Heads(nn.Module):
    """A class that no file may hold, with every number that a file may give for it: heads, widths, what
    norms count, an ε."""

    def __init__(self) -> None:
        super().__init__()
        self.heads, self.width = 4, 16
        self.embed, self.project = nn.Linear(3, 16), nn.Linear(16, 48)
        self.norm, self.root, self.last = nn.LayerNorm(16), RootNorm(16), nn.Linear(16, 5)
        self.conv, self.group = nn.Conv1d(16, 16, 1), nn.GroupNorm(1, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention between the positions of (batch, positions, 3)."""
        x = self.norm(self.embed(x))
        q, k, v = self.project(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + torch.softmax(q @ k.transpose(-1, -2), -1).matmul(v).transpose(1, 2).flatten(2)
        x = self.group(self.conv(x.transpose(1, 2))).transpose(1, 2)
        return self.last(self.root(x))


def models() -> list[nn.Module]:
    """Small models of many kinds, with records and without."""
    torch.manual_seed(0)
    conv = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    grid = copy.deepcopy(conv)
    step = grid[4].weight.detach().abs().amax(1, keepdim=True) / 7
    store(grid[4], "weight", step=step, levels=(grid[4].weight.detach() / step).round())
    sparse, foreign, palette = nn.Linear(40, 40), MLP(40, 30, 8), nn.Linear(80, 80, bias=False)
    store(sparse, "weight", kept=torch.rand(40, 40) < 0.1)
    with torch.no_grad():
        for parameter in foreign.parameters():
            size = parameter.abs().amax(-1, keepdim=True) / 7
            parameter.copy_((parameter / size).round() * size)
        palette.weight.copy_((palette.weight * 2000).round() / 2000)
    attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    half = nn.Sequential(nn.Embedding(20, 8), nn.GRU(8, 4)).to(torch.bfloat16)
    shared = nn.Linear(4, 4)
    tied = nn.Sequential(shared, nn.ReLU(), shared, nn.Sequential(nn.Linear(4, 4), shared))
    return [
        conv,
        grid,
        sparse,
        foreign,
        palette,
        attention,
        half,
        tied,
        nn.Sequential(nn.LSTM(3, 4, 2)),
        nn.Sequential(nn.Upsample(scale_factor=2), nn.AdaptiveAvgPool2d(4), nn.ZeroPad2d(1)),
        GPT(20, 8, 8, 1, 2),
        Heads(),
        prune(Heads(), torch.randn(2, 5, 3), 0.5, round_to=1),
        nn.Sequential(CountedLayerNorm(torch.ones(3), torch.zeros(3), 1e-5, 5), nn.Linear(3, 3)),
    ]


def examples(rng: random.Random) -> list[torch.Tensor]:
    """Inputs that one layer or another takes."""
    inputs = [
        torch.randn(1, 3, 8, 8),
        torch.randn(2, 4, 8, 8),
        torch.randn(2, 3),
        torch.randn(2, 4),
        torch.randn(2, 5, 8),
        torch.randn(5, 2, 3),
        torch.randn(2, 5, 3),
        torch.randint(0, 10, (2, 8)),
        torch.randn(1, 3, 4, 4, 4),
        torch.randn(2, 4, 16),
    ]
    rng.shuffle(inputs)
    return inputs


def call(model: nn.Module, rng: random.Random) -> str:
    """Use a loaded model: copy it, read its state, call it; what came of the calls in a word."""
    copy.deepcopy(model.eval()).state_dict()
    said = "does not run"
    for x in examples(rng)[:4]:
        try:
            with torch.no_grad():
                model(*[x] * (3 if isinstance(model, nn.MultiheadAttention) else 1))
            said = "runs"
        except PackedError:
            said = "refused at the first call"
        except Exception:  # a hostile model may fail in any way when it runs; it must not crash
            continue
        break
    return said


def opened(data: bytes, limit: int, into: nn.Module | None) -> nn.Module:
    """The model in a file's content."""
    file = Opened(io.BytesIO(data), len(data), Budget(limit, 2**16 + len(data)), None)
    return file.model() if into is None else file.fill(into)


GROWN = [0]
"""The most memory that loading and calling one file has taken, in bytes."""


def attempt(data: bytes, limit: int, rng: random.Random, into: nn.Module | None = None) -> str:
    """Load and call; what happened. Memory is counted from here on: writing the file is not its reader's."""
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    try:
        return loaded_and_called(data, limit, rng, into)
    finally:
        GROWN[0] = max(GROWN[0], peak() - before)


def peak() -> int:
    """The most memory this process has had since the mark was reset, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def loaded_and_called(data: bytes, limit: int, rng: random.Random, into: nn.Module | None) -> str:
    """What came of a file."""
    try:
        model = opened(data, limit, into)
    except PackedError:
        return "refused"
    except (ValueError, TypeError, KeyError, RecursionError, AttributeError, OverflowError, RuntimeError):
        return "refused"  # load turns these into one line; here the inside is attacked
    return call(model, rng)


class Mutator:
    """Mutated files by seed: the same seed is the same file."""

    def __init__(self) -> None:
        self.files = [(packed(model)[0], type(model)) for model in models()]

    def __call__(self, seed: int, limit: int) -> str:
        """Load one mutated file and use what comes out; how it was changed, and what happened."""
        rng = random.Random(seed)
        data, kind = rng.choice(self.files)
        torn = rng.random() < 0.3
        changed = damage(data, rng) if torn else reseal(data, rng)
        said = attempt(changed, limit, rng, fresh(kind))
        if torn and changed != data and said != "refused":
            return "damaged: wrong load"
        return f"{'damaged' if torn else 'resealed'}: {said}"


class Composer:
    """Composed files by seed: any permitted module under any other, any argument at any value."""

    def __call__(self, seed: int, limit: int) -> str:
        """Compose, load and call one file."""
        rng = random.Random(seed)
        if rng.random() < 0.1:
            return f"sizes: {attempt(with_sizes(rng), limit, rng, Heads())}"
        return f"composed: {attempt(composed(rng), limit, rng)}"


def fresh(kind: type[nn.Module]) -> nn.Module | None:
    """An instance to fill, for files that hold weights alone."""
    return Heads() if kind is Heads else GPT(20, 8, 8, 1, 2) if kind is GPT else None


def with_sizes(rng: random.Random) -> bytes:
    """Weights for the class ``Heads``, any of them narrower, with any numbers for its sizes."""
    model = Heads()
    names, items = list[str](), list[Item]()
    narrow = {16: rng.choice([16, 16, 12, 8, 4, 1]), 48: rng.choice([48, 48, 36, 24, 3])}
    for name, value in model.state_dict().items():
        shape = [narrow.get(n, n) if rng.random() < 0.97 else rng.randrange(n + 1) for n in value.shape]
        names.append(name)
        items.append(Item(torch.ones(shape)))
    sizes: Any = sizes_of(model) | {name: {"count": 16} for name in ("norm", "group", "root", "embed")}
    for _ in range(rng.randrange(4)):
        change_node(sizes, rng)
    return assembled({"names": names, "sizes": sizes}, items)


def composed(rng: random.Random) -> bytes:
    """A file whose tree was drawn; its tensors are those that the tree asks for, or nearly."""
    tree = draw_tree(rng)
    items, count = list[Item](), 0
    for module, name, _ in tensors_of(tree):
        shape, kind = list(getattr(module, name).shape), getattr(module, name).dtype
        if rng.random() < 0.02:
            shape = [max(0, n + rng.choice([-1, 0, 1])) for n in shape]
        count += torch.Size(shape).numel()
        if count > 2**20 or len(items) > 300:
            break
        value = torch.zeros(shape, dtype=kind) if rng.random() < 0.5 else torch.ones(shape, dtype=kind)
        items.append(
            Item(value.to(torch.float16) if rng.random() < 0.01 and kind.is_floating_point else value)
        )
    header: dict[str, Any] = {"tree": tree}
    if rng.random() < 0.1:
        header["order"] = [rng.randrange(max(1, len(items))) for _ in items]
    return assembled(header, items)


def tensors_of(tree: Any) -> list[Any]:
    """The places of the tensors of a tree that can be built; none of others."""
    from torchlift.packed.trees import Builder

    try:
        return list(slots(Builder(Budget(2**28)).build(tree)[0]))
    except Exception:  # a tree that is refused has no tensors
        return []


def draw_tree(rng: random.Random, depth: int = 0) -> Any:
    """A module drawn at random."""
    if rng.random() < 0.02:
        return rng.choice(VALUES)
    if depth < 4 and rng.random() < 0.4:
        kind = rng.choice(["Sequential"] * 8 + ["ModuleList", "ModuleDict"])
        children = {str(n): draw_tree(rng, depth + 1) for n in range(rng.randrange(1, 5))}
        if rng.random() < 0.2:
            children["again"] = {"same": rng.randrange(6)}
        return {"kind": kind, "children": children}
    kind = rng.choice(list(LAYERS))
    needed = NEEDED.get(kind) or next((v for k, v in PREFIXES.items() if kind.startswith(k)), ())
    arguments = {key: rng.choice(USUAL.get(key, VALUES)) for key in needed}
    for key in LAYERS[kind].checks:
        if key not in arguments and rng.random() < 0.15:
            arguments[key] = rng.choice(USUAL.get(key, VALUES) if rng.random() < 0.6 else VALUES)
    if arguments and rng.random() < 0.15:
        arguments[rng.choice(list(arguments))] = rng.choice(VALUES)
    if kind[-2:] in ("1d", "2d", "3d") and "padding" in needed and rng.random() < 0.8:
        arguments["padding"] = [rng.choice([0, 1, 2, -1, 65_535])] * (2 * int(kind[-2]))
    return {"kind": kind, "args": arguments}


def assembled(header: Any, items: list[Item]) -> bytes:
    """A file with any header and any items, sealed."""
    written = write_items(items)
    engine = zlib.compressobj(zdict=COMMON)
    text = engine.compress(json.dumps(header).encode()) + engine.flush()
    plan = zlib.compress(written.plan)
    front = FRONT.pack(MAGIC, SEALED, len(text), len(plan), len(written.plan))
    body = b"".join([front, text, plan, *written.streams])
    return body + seal(body, None)


def damage(data: bytes, rng: random.Random) -> bytes:
    """Truncated, flipped or spliced, the seal left as it is."""
    if not data:
        return data
    at, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    kind = rng.randrange(4)
    if kind == 0:
        return data[:at]
    if kind == 1:
        index = min(at, len(data) - 1)
        return data[:index] + bytes([data[index] ^ 1 << rng.randrange(8)]) + data[index + 1 :]
    if kind == 2:
        return data[:at] + data[end:]
    return data[:at] + rng.randbytes(end - at) + data[end:]


def reseal(data: bytes, rng: random.Random) -> bytes:
    """Changed inside, the seal right again."""
    body = data[:-SIZE]
    change = rng.choice([damage, front, header, header, header, plan, plan])
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        body = change(body, rng)
    return body + seal(body, None)


def front(body: bytes, rng: random.Random) -> bytes:
    """A number of the first bytes."""
    if len(body) < FRONT.size:
        return damage(body, rng)
    fields = list(FRONT.unpack_from(body))
    at = rng.randrange(1, len(fields))
    fields[at] = rng.choice([0, 1, fields[at] + 1, max(0, fields[at] - 1), fields[at] // 2])
    return FRONT.pack(fields[0], fields[1] % 256, *fields[2:]) + body[FRONT.size :]


def sections(body: bytes) -> tuple[list[Any], bytes, bytes, bytes]:
    """The front's fields, the header's text, the plan's numbers and the streams."""
    fields = list(FRONT.unpack_from(body))
    middle = FRONT.size + fields[2]
    text = zlib.decompressobj(zdict=COMMON).decompress(body[FRONT.size : middle])
    numbers = zlib.decompress(body[middle : middle + fields[3]])
    return fields, text, numbers, body[middle + fields[3] :]


def joined(fields: list[Any], text: bytes, numbers: bytes, streams: bytes) -> bytes:
    """A file's body again."""
    engine = zlib.compressobj(zdict=COMMON)
    text, plan = engine.compress(text) + engine.flush(), zlib.compress(numbers)
    return FRONT.pack(*fields[:2], len(text), len(plan), len(numbers)) + text + plan + streams


def header(body: bytes, rng: random.Random) -> bytes:
    """A node of the JSON tree, replaced, removed or doubled."""
    try:
        fields, text, numbers, streams = sections(body)
        tree = json.loads(text)
    except (zlib.error, ValueError, Exception):
        return damage(body, rng)
    change_node(tree, rng)
    return joined(fields, json.dumps(tree).encode(), numbers, streams)


def plan(body: bytes, rng: random.Random) -> bytes:
    """A byte of the inflated plan, or the streams after it."""
    try:
        fields, text, numbers, streams = sections(body)
    except Exception:  # what an earlier change left cannot be taken apart
        return damage(body, rng)
    if rng.random() < 0.2:
        return joined(fields, text, numbers, damage(streams, rng))
    return joined(fields, text, damage(numbers, rng), streams)


def change_node(tree: Any, rng: random.Random) -> None:
    """Replace, remove or double one place of a tree."""
    holders = list(walk(tree))
    if not holders:
        return
    holder, key = rng.choice(holders)
    kind = rng.random()
    if kind < 0.5:
        old = holder[key]
        number = type(old) is int
        holder[key] = (
            old + rng.choice([-1, 1, 100, 2**33]) if number and rng.random() < 0.5 else rng.choice(VALUES)
        )
    elif kind < 0.7:
        other, name = rng.choice(holders)
        holder[key] = copy.deepcopy(other[name])
    elif kind < 0.85 and isinstance(holder, list):
        holder.extend(copy.deepcopy(holder[:1]) * rng.choice([1, 3]))
    else:
        del holder[key]


def walk(tree: Any) -> list[tuple[Any, Any]]:
    """Every place below a node, as its holder and key."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    return [position for key in keys for position in [(tree, key), *walk(tree[key])]]


def buildable(kind: str, arguments: dict[str, Any]) -> bool:
    """Whether a module of this kind can be made so."""
    try:
        build(kind, arguments)
    except PackedError:
        return False
    return True
