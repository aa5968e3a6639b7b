# pyright: reportPrivateUsage=false
"""``save`` and ``load``: one small file that holds a model, and nothing that runs.

    offset  bytes  content
    0       8      b"TLIFT001"
    8       1      seal: 0 SHA-256, 1 HMAC-SHA-256 with the writer's key
    9       3      0
    12      4      length of the header
    16      4      length of the plan
    20      4      length of the plan when inflated
    24      …      header: deflated JSON (the tree of modules or the names of the weights, the card)
    …       …      plan: deflated numbers (types, shapes, forms and tables of the tensors)
    …       …      a stream for each tensor
    end−32  32     seal of everything before

Numbers are unsigned, least byte first. Decoding gives exactly the same weights. Whatever is truncated,
changed, oversize or unknown is an error.
"""

import contextlib
import hashlib
import io
import json
import os
import stat
import struct
import zlib
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from torchlift import files
from torchlift.channels.layout import is_last
from torchlift.channels.sparse_linear import with_dense_layers
from torchlift.core.stored import KEPT, STEP, valid_records
from torchlift.core.weights import refresh_flat_weights
from torchlift.errors import TorchliftError
from torchlift.packed import sealing, tensors
from torchlift.packed.budget import STEPS, Budget, PackedError, default_limit
from torchlift.packed.elements import bits_of
from torchlift.packed.guard import guard_first_call
from torchlift.packed.into import IntoModel, plain_state, sizes_of
from torchlift.packed.layers import kind_name, layer_of
from torchlift.packed.tensors import Item, TensorReader
from torchlift.packed.trees import FORWARD, Builder, Describer, UnlistedError, hooks, slots

MAGIC = b"TLIFT001"
FRONT = struct.Struct("<8sB3xIII")
HEADER = 16 * 2**20
OBJECTS = 80
"""Bytes of memory per byte of JSON, about, when it is parsed and then built into modules."""
KEYS = frozenset({"tree", "names", "order", "frozen", "last", "sizes", "why", "card"})
COMMON = (
    b'"running_mean","running_var","num_batches_tracked","weight","bias"],"why":"the model () is not one of '
    b'the layers a file may hold","sizes":{"names":["order":["frozen":["last":["card":{"batch_first":true,'
    b'"num_layers":2,"hidden_size":"input_size":{"kind":"LSTM","args":{"normalized_shape":["LayerNorm",'
    b'{"kind":"Embedding","args":{"num_embeddings":"embedding_dim":{"kind":"AdaptiveAvgPool2d","args":'
    b'{"output_size":1}},{"kind":"Dropout","args":{"p":{"kind":"GELU"},{"kind":"BatchNorm2d","args":'
    b'{"num_features":{"kind":"Flatten"},{"kind":"MaxPool2d","args":{"kernel_size":2,"stride":2}},'
    b'"groups":"bias":false,"stride":[2,2],"padding":[1,1]}},{"kind":"ReLU"},{"kind":"Conv2d","args":'
    b'{"in_channels":"out_channels":"kernel_size":[3,3],{"tree":{"kind":"Sequential","children":{"0":'
    b'{"kind":"Linear","args":{"in_features":"out_features":'
)
"""What headers have in common: text that the deflater may point back to. It never changes."""


class Saved(int):
    """The size of a file in bytes; ``digest`` is the SHA-256 of its content, in hexadecimal; ``needs_model``
    says why loading needs ``into=model``, and is empty where it does not."""

    digest: str
    needs_model: str


def save(
    model: Any,
    path: str | os.PathLike[str],
    *,
    card: Mapping[str, Any] | None = None,
    into: nn.Module | None = None,
    key: bytes | None = None,
) -> Saved:
    """Write the model to a packed file, with its storage records; its size in bytes, with its ``digest``.

    The file is read back and compared before anything is written. Where every module is one of torch's
    layers and containers, the file holds the model; otherwise its weights alone, for ``load(path,
    into=model)``. A model with hooks is an error, since no file can hold them, unless ``into`` is a fresh
    instance that has them too. ``card``: what else to say, as data; a result
    has one, which is also written beside the file (of a compressed model, its inputs and outputs alone are in
    the file, so that it stays as small as it says). With a ``key`` the file is sealed:
    ``load(path, key=key)`` then raises for what others wrote.
    """
    card = getattr(model, "card", None) if card is None else card
    inside, model = getattr(model, "file_card", card), getattr(model, "model", model)
    if not isinstance(model, nn.Module):
        raise TorchliftError(f"save takes a module or a result with one, not a {type(model).__name__}.")
    data, why = packed(model, card=inside, into=into, key=key)
    files.write_file(path, data)
    saved = Saved(len(data))
    saved.digest, saved.needs_model = hashlib.sha256(data).hexdigest(), why
    if card is None:
        card_path(path).unlink(missing_ok=True)  # of a file that was here before
    else:
        files.write_file(card_path(path), (json.dumps(card, indent=1) + "\n").encode())
    with Path(path).open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != saved.digest:
            raise PackedError(f"{path} was not written whole: save it again.")
    return saved


def card_path(path: str | os.PathLike[str]) -> Path:
    """Where the card of a file lies beside it: ``card.json`` of ``model.tl``, else under the file's name."""
    file = Path(path)
    return file.with_name("card.json" if file.name == "model.tl" else f"{file.stem}.card.json")


def packed(
    model: nn.Module,
    *,
    card: Mapping[str, Any] | None = None,
    into: nn.Module | None = None,
    key: bytes | None = None,
) -> tuple[bytes, str]:
    """The file's content, and why it needs ``into=`` if it does; read back and compared."""
    check_key(key)
    content = described_model(model, into, card)
    data = assembled(content, key)
    verify(model, content, data, into, key)
    return data, content.why


class Content:
    """What a file will say: header, items, and why it holds no tree."""

    def __init__(self, header: dict[str, Any], items: list[Item], why: str) -> None:
        self.header, self.items, self.why = header, items, why

    @property
    def text(self) -> bytes:
        """The header, deflated."""
        try:
            text = json.dumps(self.header, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise TorchliftError(f"save: the card is not plain data ({error}).") from error
        engine = zlib.compressobj(9, zdict=COMMON)
        return engine.compress(text) + engine.flush()


def described_model(
    model: nn.Module, into: nn.Module | None = None, card: Mapping[str, Any] | None = None
) -> Content:
    """A model as a header and items; an error names what no file can hold."""
    model = with_dense_layers(model)
    try:
        state = plain_state(model)
    except ValueError as error:
        raise TorchliftError(f"save: {error}. A file holds plain tensors only.") from error
    header: dict[str, Any] = {} if card is None else {"card": dict(card)}
    try:
        if into is not None:
            raise UnlistedError("it was saved to be loaded into a model of yours")
        header["tree"], why = Describer().describe(model), ""
        named = [getattr(module, name) for module, name, _ in slots(model)]
    except UnlistedError as error:
        why, named = str(error), list(state.values())
        check_hooks(model, into)
        header |= {"names": list(state), "why": why}
        if sizes := sizes_of(model):
            header["sizes"] = sizes
    numbers, unique = numbered(named)
    if numbers != list(range(len(numbers))):
        header["order"] = numbers
    if frozen := [n for n, t in enumerate(unique) if isinstance(t, nn.Parameter) and not t.requires_grad]:
        header["frozen"] = frozen
    if last := [n for n, t in enumerate(unique) if is_last(t)]:
        header["last"] = last
    return Content(header, with_records(model, unique), why)


def check_hooks(model: nn.Module, into: nn.Module | None) -> None:
    """A hook is code: it is in a given model, or the file would compute something else."""
    for name, module in model.named_modules():
        if into is None and (names := hooks(module, FORWARD)):
            raise TorchliftError(
                f"save: {name or 'the model'} has a {names[0]}, which no file can hold: remove it, or pass "
                "save(model, path, into=fresh) and load(path, into=fresh) with an instance that has it."
            )


def numbered(named: list[Tensor]) -> tuple[list[int], list[Tensor]]:
    """A number for each tensor, and the tensors by number; those that share their memory whole have one."""
    number_of: dict[Any, int] = {}
    unique: list[Tensor] = []
    numbers: list[int] = []
    for tensor in named:
        memory = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        key = (memory, isinstance(tensor, nn.Parameter)) if tensor.numel() else id(tensor)
        number = number_of.setdefault(key, len(unique))
        if number == len(unique):
            unique.append(tensor)
        numbers.append(number)
    return numbers, unique


def with_records(model: nn.Module, unique: list[Tensor]) -> list[Item]:
    """Tensors with what is recorded of them."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    records = {id(parameters[name]): (step, kept) for name, step, kept in valid_records(model)}
    return [Item(t.detach(), *records.get(id(t), (None, None))) for t in unique]


def assembled(content: Content, key: bytes | None = None) -> bytes:
    """All parts of a file, sealed."""
    written = tensors.write_items(content.items)
    header, plan = content.text, zlib.compress(written.plan, 9)
    kind = sealing.CHECKSUM if key is None else sealing.KEYED
    front = FRONT.pack(MAGIC, kind, len(header), len(plan), len(written.plan))
    data = b"".join([front, header, plan, *written.streams])
    return data + sealing.seal(data, key)


def verify(
    model: nn.Module, content: Content, data: bytes, into: nn.Module | None, key: bytes | None
) -> None:
    """Read the file back; whatever is not exactly what was given is an error."""
    del model
    opened = Opened(io.BytesIO(data), len(data), Budget(2**62, 2**62), key)
    if into is None and "tree" in content.header:
        opened.tree()
    elif into is not None:
        IntoModel(
            into,
            opened.header["names"],
            opened.numbers(len(opened.header["names"])),
            opened.header.get("sizes"),
        )
    reader = opened.plan()
    for number, item in enumerate(content.items):
        again = reader.read(number)
        for one, other in ((item.value, again.value), (item.step, again.step), (item.kept, again.kept)):
            if not identical(one, other):
                raise TorchliftError("save: a tensor did not come back as it was; please report this.")


def identical(one: Tensor | None, other: Tensor | None) -> bool:
    """Whether two tensors are the same bit for bit."""
    if one is None or other is None:
        return one is other
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return not one.numel() or bool((bits_of(one) == bits_of(other)).all())


def load(
    path: str | os.PathLike[str],
    *,
    into: nn.Module | None = None,
    limit: int | None = None,
    digest: str | None = None,
    key: bytes | None = None,
) -> nn.Module:
    """The model in a packed file, in evaluation mode, with its storage records.

    ``into``: a fresh instance of the saved model's class, for files that hold weights alone; its layers take
    the widths that the file has. ``limit``: the most bytes that reading may take, and that the first call of
    the model may make; by default 256 MiB and 1024 times the file's size. ``digest``: the SHA-256 that the
    file must have, as :func:`save` gives it. ``key``: the key it must be sealed with.
    """
    with opened_file(path, limit, digest, key) as opened:
        return opened.model() if into is None else opened.fill(into)


def read_card(
    path: str | os.PathLike[str], *, limit: int | None = None, key: bytes | None = None
) -> dict[str, Any]:
    """The card in a packed file; empty where it has none."""
    with opened_file(path, limit, None, key) as opened:
        return opened.header.get("card", {})


@contextlib.contextmanager
def opened_file(
    path: str | os.PathLike[str], limit: int | None, digest: str | None, key: bytes | None
) -> Generator["Opened"]:
    """A file, its seal checked; errors begin with its path."""
    check_key(key)
    if limit is not None and (type(limit) is not int or limit < 1):
        raise TorchliftError(f"load: limit={limit!r} is not a number of bytes.")
    if digest is not None and type(digest) is not str:
        raise TorchliftError(f"load: digest={digest!r} is not text: pass what save returned as its digest.")
    try:
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise PackedError("this is not a regular file.")
            size = about.st_size
            budget = Budget(default_limit(size) if limit is None else limit, STEPS + size)
            whole: BinaryIO = file
            if key is not None or digest is not None:  # what was checked is what is read
                budget.take(size, "the file")
                data = file.read(size)
                if digest is not None:
                    sealing.check_digest(data, digest)
                whole, size = io.BytesIO(data), len(data)
            yield Opened(whole, size, budget, key)
    except PackedError as error:
        raise PackedError(f"{path}: {error}") from error
    except OSError as error:
        raise PackedError(f"{path} cannot be read: {error.strerror}.") from error
    except (TorchliftError, MemoryError):
        raise
    except Exception as error:  # what a hostile file leads to has no list; it must not pass for a bug of ours
        raise PackedError(f"{path}: the file makes no sense ({type(error).__name__}: {error}).") from error


def are_sizes(sizes: Any) -> bool:
    """Whether numbers stand by the names of modules, and of what they are in them."""
    return type(sizes) is dict and all(
        type(own) is dict and all(type(value) in (int, float) for value in own.values())
        for own in sizes.values()
    )


def check_key(key: bytes | None) -> None:
    """A key is bytes, and some."""
    if key is not None and (not isinstance(key, bytes | bytearray) or not key):
        raise TorchliftError("key= takes at least one byte; secrets.token_bytes(32) makes a good one.")


class Opened:
    """A file's parts: its header, and where its plan and streams lie."""

    def __init__(self, file: BinaryIO, size: int, budget: Budget, key: bytes | None) -> None:
        self.file, self.size, self.budget = file, size, budget
        file.seek(0)
        front = file.read(FRONT.size)
        if size < FRONT.size + sealing.SIZE or front[:5] != MAGIC[:5]:
            raise PackedError("this is not a torchlift model file.")
        if front[:8] != MAGIC:
            raise PackedError(
                f"format {front[5:8]!r} is not known; this torchlift reads {MAGIC[5:].decode()}."
            )
        _, seal, header, plan, self.inflated = FRONT.unpack(front)
        if FRONT.size + header + plan + sealing.SIZE > size:
            raise PackedError("a section is longer than the file.")
        sealing.check_seal(file, size, seal, key)
        self.start = FRONT.size + header + plan
        self.lengths = header, plan
        file.seek(FRONT.size)
        self.header = self.parsed(file.read(header))

    def parsed(self, text: bytes) -> dict[str, Any]:
        """The header, if it is of a size that headers have."""
        most = min(HEADER, (self.budget.limit - self.budget.used) // (OBJECTS + 1))
        content = inflated(text, max(most, 1), zlib.decompressobj(zdict=COMMON), "the header")
        self.budget.take(OBJECTS * len(content), "the header")
        header = json.loads(content)
        if type(header) is not dict or not set(header) <= KEYS or ("tree" in header) == ("names" in header):
            raise PackedError("the header says something else than a header does.")
        if type(header.get("card", {})) is not dict:
            raise PackedError("the card is not a table.")
        if not are_sizes(header.get("sizes", {})):
            raise PackedError("the sizes are not a table of numbers.")
        return header

    def plan(self) -> TensorReader:
        """The reader of the items."""
        self.budget.take(self.inflated, "the plan")
        self.file.seek(FRONT.size + self.lengths[0])
        text = self.file.read(self.lengths[1])
        content = inflated(text, self.inflated + 1, zlib.decompressobj(), "the plan")
        if len(content) != self.inflated:
            raise PackedError("the plan has another length than it says.")
        return TensorReader(content, self.file, self.start, self.size - sealing.SIZE, self.budget)

    def numbers(self, count: int) -> list[int]:
        """Which item each of ``count`` places has."""
        order = self.header.get("order", list(range(count)))
        if type(order) is not list or len(order) != count or any(type(n) is not int for n in order):
            raise PackedError("the order of the tensors is not one of all places.")
        if order and (min(order) < 0 or len(set(order)) != max(order) + 1):
            raise PackedError("the order of the tensors leaves some out.")
        return order

    def marks(self, key: str, count: int) -> set[int]:
        """The items that a list of the header names."""
        numbers = self.header.get(key, [])
        if type(numbers) is not list or any(type(n) is not int or not 0 <= n < count for n in numbers):
            raise PackedError(f"{key} names tensors that there are not.")
        return set(numbers)

    def tree(self) -> nn.Module:
        """The model without memory."""
        return Builder(self.budget).build(self.header["tree"])[0]

    def model(self) -> nn.Module:
        """The model that the file holds, guarded at its first call."""
        if "tree" not in self.header:
            raise PackedError(
                f"the file holds weights alone ({self.header.get('why', '')}): load(path, into=model) "
                "with an instance of its class."
            )
        model = self.tree()
        entries = list(slots(model))
        numbers = self.numbers(len(entries))
        expected: dict[int, tuple[Tensor, bool]] = {}
        for (module, name, learns), number in zip(entries, numbers, strict=True):
            mine = (getattr(module, name), learns)
            other = expected.setdefault(number, mine)
            if other[0].shape != mine[0].shape or other[1] != learns:
                raise PackedError("one tensor stands for two of different shapes.")
        items = self.items(len(expected), lambda n, head: fits(expected[n][0], head))
        frozen = self.marks("frozen", len(items))
        parameters: dict[int, nn.Parameter] = {}
        for (module, name, learns), number in zip(entries, numbers, strict=True):
            item = items[number]
            if learns:
                if number not in parameters:
                    parameters[number] = nn.Parameter(item.value, number not in frozen)
                module._parameters[name] = parameters[number]
                remember(module, name, item)
            else:
                module._buffers[name] = item.value
        refresh_flat_weights(model)
        check_types(model)
        return guard_first_call(model.eval(), self.budget.limit)

    def fill(self, model: nn.Module) -> nn.Module:
        """The given model with the file's weights."""
        names = self.names()
        target = IntoModel(model, names, self.numbers(len(names)), self.header.get("sizes"))
        items = self.items(len({n for _, n in target.named}), target.check)
        frozen = self.marks("frozen", len(items))
        target.fill([item.value for item in items], [n not in frozen for n in range(len(items))])
        for name, number in target.named:
            owner, leaf = target.slots[name]
            if leaf in owner._parameters:
                remember(owner, leaf, items[number])
        return model.eval()

    def names(self) -> list[str]:
        """The names of the file's weights; a tree has those of its modules."""
        if "tree" in self.header:
            model = self.tree()
            names = {id(module): name for name, module in model.named_modules()}
            return [".".join(filter(None, (names[id(m)], leaf))) for m, leaf, _ in slots(model)]
        names = self.header["names"]
        if type(names) is not list or any(type(name) is not str for name in names):
            raise PackedError("the names of the weights are not a list of words.")
        return names

    def items(self, count: int, check: Any) -> list[Item]:
        """All items, each checked before it is made."""
        reader = self.plan()
        if len(reader.heads) != count:
            raise PackedError(f"the file has {len(reader.heads)} tensors where {count} have a place.")
        for number, head in enumerate(reader.heads):
            check(number, head)
        with self.budget.lend(sum(head.bytes for head in reader.heads), "the model"):
            pass  # all of it fits before any of it is made
        last, items = self.marks("last", count), list[Item]()
        for number in range(count):
            item = reader.read(number)
            if number in last:
                if item.value.ndim != 4:
                    raise PackedError("a tensor without channels has them last.")
                with self.budget.lend(item.value.numel() * item.value.element_size(), "a tensor"):
                    value = item.value.contiguous(memory_format=torch.channels_last)
                item = Item(value, item.step, item.kept)
            items.append(item)
        return items


def inflated(text: bytes, most: int, engine: Any, what: str) -> bytes:
    """A deflated part of at most so many bytes."""
    try:
        content = engine.decompress(text, most)
    except zlib.error as error:
        raise PackedError(f"{what} is damaged ({error}).") from error
    if not engine.eof or engine.unused_data:
        raise PackedError(f"{what} is larger than {most} bytes, or is damaged.")
    return content


def fits(expected: Tensor, head: tensors.Head) -> None:
    """Raise for a tensor of another shape or kind than its layer makes."""
    if list(expected.shape) != head.shape:
        raise PackedError(f"a tensor is {tuple(head.shape)} where its layer has {tuple(expected.shape)}.")
    if expected.dtype.is_floating_point != head.kind.is_floating_point or (
        not head.kind.is_floating_point and head.kind != expected.dtype
    ):
        raise PackedError(f"a tensor is {head.kind} where its layer has {expected.dtype}.")


def check_types(model: nn.Module) -> None:
    """Raise for a layer whose tensors are of several number types: kernels take them for one."""
    for module in model.modules():
        name = kind_name(module)
        if name is not None and not layer_of(name).container:
            tensors = [t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point()]
            if len({tensor.dtype for tensor in tensors}) > 1:
                raise PackedError(f"a {name} has tensors of several number types.")


def remember(owner: nn.Module, name: str, item: Item) -> None:
    """The record of a weight, beside it."""
    for form, tensor in ((STEP, item.step), (KEPT, item.kept)):
        if form.format(name) in owner._buffers:
            delattr(owner, form.format(name))
        if tensor is not None:
            device = getattr(owner, name).device
            owner.register_buffer(form.format(name), tensor.to(device), persistent=False)
