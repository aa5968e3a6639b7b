"""The linear maps inside a network's layers: what each multiplies its weight with, and where the weight is.

y = W x + b  in groups,   W (groups, r, n);   x: features, patches of a convolution, states of a recurrent
layer
"""

import abc
import copy
import dataclasses
import math
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchlift.channels.layers import FewerHeads
from torchlift.channels.resizing import CONV, TRANSPOSED, is_conv1d
from torchlift.compress.lags import Lags, line_of

LIMIT = 8192
"""Inputs of one Gram matrix."""

LONG = 8
"""Taps of a kernel along one dimension from which on lags are cheaper than patches."""

PIECE = 2**24
"""Entries of one piece of rows: patches of a convolution are laid out piece by piece."""

LayerCall = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of a call."""


@dataclasses.dataclass(frozen=True)
class LinearMap(abc.ABC):
    """One weight of a layer as a matrix."""

    module: str
    leaf: str = "weight"
    bias_leaf: str | None = "bias"

    columns_dim = 1
    """The dimension of the weight along which its inputs lie."""
    rows_dim = 0
    rows_are_outputs = False
    """Whether the module's output itself is the map's target, outputs along ``channel_dim``."""
    channel_dim = -1
    own_targets = False
    """Whether the compressed layer's own outputs are its target, not the original's."""

    @property
    def weight(self) -> str:
        """The dotted name of the weight."""
        return f"{self.module}.{self.leaf}".removeprefix(".")

    def bias_of(self, model: nn.Module) -> nn.Parameter | None:
        """The bias that is added to what the matrix gives."""
        if self.bias_leaf is None:
            return None
        owner, _, leaf = self.bias_leaf.rpartition(".")
        return getattr(model.get_submodule(self.module).get_submodule(owner), leaf, None)

    def weight_of(self, model: nn.Module) -> nn.Parameter:
        """The weight as it is stored."""
        return model.get_parameter(self.weight)

    def groups(self, layer: nn.Module) -> int:
        """How many independent matrices there are."""
        del layer
        return 1

    def matrix(self, layer: nn.Module, weight: Tensor) -> Tensor:
        """W (groups, r, n)."""
        return weight.detach().reshape(self.groups(layer), -1, math.prod(weight.shape[1:]))

    def tensor(self, layer: nn.Module, matrix: Tensor, shape: torch.Size) -> Tensor:
        """The stored weight of a matrix."""
        del layer
        return matrix.reshape(shape)

    def step_tensor(self, layer: nn.Module, step: Tensor, shape: torch.Size) -> Tensor:
        """Steps (groups, r, blocks) as they lie along the stored weight."""
        del layer
        return step.reshape(step.shape[0] * step.shape[1], -1, *[1] * (len(shape) - 2))

    @abc.abstractmethod
    def rows(self, layer: nn.Module, call: LayerCall, thin: Tensor | None) -> Iterator[Tensor]:
        """x (groups, rows, n) of a call, piece by piece; ``thin``: these positions of every sample alone."""

    def lags(self, layer: nn.Module, call: LayerCall) -> Lags | None:
        """What Σ x xᵀ of a call is had from, where there is a cheaper way than by its rows."""
        del layer, call
        return None

    def has_lags(self, layer: nn.Module) -> bool:
        """Whether there is."""
        del layer
        return False

    def positions(self, layer: nn.Module, call: LayerCall) -> int:
        """Rows of one sample of a call, where there may be too many."""
        del layer, call
        return 1

    def targets(self, layer: nn.Module, call: LayerCall, output: Any, thin: Tensor | None) -> Tensor:
        """y (rows, all outputs) of a call."""
        del output
        weight = self.matrix(layer, layer.get_parameter(self.leaf))
        products = torch.cat([piece @ weight.mT.to(piece) for piece in self.rows(layer, call, thin)], 1)
        flat = products.movedim(0, 1).flatten(1)
        bias = None if self.bias_leaf is None else dict(layer.named_parameters()).get(self.bias_leaf)
        return flat if bias is None else flat + bias.detach().to(flat)


class DenseMap(LinearMap):
    """``nn.Linear``."""

    rows_are_outputs = True

    def rows(self, layer: nn.Module, call: LayerCall, thin: Tensor | None) -> Iterator[Tensor]:
        """All positions of the input."""
        del layer, thin
        x = first(call)
        yield x.reshape(1, -1, x.shape[-1])

    def targets(self, layer: nn.Module, call: LayerCall, output: Any, thin: Tensor | None) -> Tensor:
        """The output itself."""
        del layer, call, thin
        return output.reshape(-1, output.shape[-1])


class Turned(DenseMap):
    """Hugging Face's Conv1D: a linear layer whose weight is (in, out)."""

    columns_dim = 0
    rows_dim = 1

    def matrix(self, layer: nn.Module, weight: Tensor) -> Tensor:
        """The transpose."""
        del layer
        return weight.detach().mT[None]

    def tensor(self, layer: nn.Module, matrix: Tensor, shape: torch.Size) -> Tensor:
        """The transpose."""
        del layer, shape
        return matrix[0].mT.contiguous()

    def step_tensor(self, layer: nn.Module, step: Tensor, shape: torch.Size) -> Tensor:
        """(blocks, out)."""
        del layer, shape
        return step[0].mT.contiguous()


class ConvolutionMap(LinearMap):
    """Convolutions of any dimension, grouped and depthwise ones too: patches are the rows."""

    rows_are_outputs = True
    channel_dim = 1

    def groups(self, layer: nn.Module) -> int:
        """The groups of the convolution."""
        return cast(Any, layer).groups

    def padded(self, layer: Any, x: Tensor) -> Tensor:
        """The input with its border."""
        return functional.pad(
            x, border(layer), mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode
        )

    def batched(self, layer: Any, call: LayerCall) -> Tensor:
        """The input with a batch dimension."""
        x = first(call)
        return x[None] if x.ndim == len(layer.kernel_size) + 1 else x

    def strides(self, layer: Any) -> tuple[int, ...]:
        """Steps from patch to patch."""
        return layer.stride

    def has_lags(self, layer: nn.Module, blocks: int = 1) -> bool:
        """For a long kernel along one dimension, and blocks of whole channels."""
        conv = cast(Any, layer)
        kernel = conv.kernel_size
        taps, along = math.prod(kernel), kernel.index(max(kernel))
        long = taps == max(kernel) and taps >= LONG and self.strides(conv)[along] == conv.dilation[along] == 1
        return long and conv.groups == 1 and conv.in_channels % blocks == 0

    def lags(self, layer: nn.Module, call: LayerCall) -> Lags | None:
        """Of all channels."""
        return self.lags_of(layer, call, 1)

    def lags_of(self, layer: Any, call: LayerCall, blocks: int) -> Lags | None:
        """Of so many blocks of channels."""
        kernel = layer.kernel_size
        if not self.has_lags(layer, blocks):
            return None
        x = self.padded(layer, self.batched(layer, call))
        for k, step in enumerate(self.strides(layer)):
            x = (
                x.index_select(2 + k, torch.arange(0, x.shape[2 + k], step, device=x.device))
                if step > 1
                else x
            )
        line = line_of(x.float(), kernel)
        return Lags.of(line.unflatten(1, (blocks, -1)).movedim(1, 0), max(kernel))

    def positions(self, layer: nn.Module, call: LayerCall) -> int:
        """Patches of a sample."""
        return patch_view(self.padded(layer, self.batched(layer, call)[:1]), layer, self.strides(layer))[
            0, 0
        ].numel() // math.prod(cast(Any, layer).kernel_size)

    def rows(self, layer: nn.Module, call: LayerCall, thin: Tensor | None) -> Iterator[Tensor]:
        """Patches: (groups, samples · positions, channels · kernel)."""
        x = self.batched(layer, call)
        kernel = math.prod(cast(Any, layer).kernel_size)
        groups, dims = self.groups(layer), x.ndim - 2
        whole = patch_view(self.padded(layer, x[:1]), layer, self.strides(layer))
        each = (
            (whole[0].numel() // (kernel * x.shape[1]) if thin is None else len(thin)) * x.shape[1] * kernel
        )
        for some in x.split(max(1, PIECE // each)):
            view = patch_view(self.padded(layer, some), layer, self.strides(layer)).movedim(1, 1 + dims)
            flat = chosen(view, dims, thin)  # (samples, positions, channels, *kernel)
            flat = flat.reshape(flat.shape[0] * flat.shape[1], groups, -1)
            yield flat.movedim(1, 0)

    def targets(self, layer: nn.Module, call: LayerCall, output: Any, thin: Tensor | None) -> Tensor:
        """The output itself."""
        dims = len(cast(Any, layer).kernel_size)
        y = (output[None] if output.ndim == dims + 1 else output).flatten(2).movedim(1, 2)
        return (y if thin is None else y[:, thin.to(y.device)]).flatten(0, 1)


class Transposed(ConvolutionMap):
    """Transposed convolutions: a convolution with the kernel turned round, of the input with zeros
    between."""

    columns_dim = 0
    rows_dim = 1

    def strides(self, layer: Any) -> tuple[int, ...]:
        """Every place: the stride is in the zeros."""
        return (1,) * len(layer.kernel_size)

    def padded(self, layer: Any, x: Tensor) -> Tensor:
        """The input with zeros between and around."""
        sizes = [(size - 1) * stride + 1 for size, stride in zip(x.shape[2:], layer.stride, strict=True)]
        spread = x.new_zeros(*x.shape[:2], *sizes)
        spread[(slice(None), slice(None), *(slice(None, None, s) for s in layer.stride))] = x
        pads: list[int] = []
        for k in reversed(range(len(sizes))):
            reach = layer.dilation[k] * (layer.kernel_size[k] - 1) - layer.padding[k]
            pads += [reach, reach + layer.output_padding[k]]
        return functional.pad(spread, pads)

    def matrix(self, layer: nn.Module, weight: Tensor) -> Tensor:
        """(in, out / groups, *kernel) → (groups, out / groups, in / groups · kernel), turned round."""
        groups = self.groups(layer)
        w = weight.detach().flip(*range(2, weight.ndim)).flatten(2)
        return w.reshape(groups, -1, *w.shape[1:]).transpose(1, 2).flatten(2)

    def tensor(self, layer: nn.Module, matrix: Tensor, shape: torch.Size) -> Tensor:
        """The way back."""
        groups = self.groups(layer)
        w = matrix.reshape(groups, shape[1], shape[0] // groups, -1).transpose(1, 2)
        return w.reshape(shape).flip(*range(2, len(shape))).contiguous()

    def step_tensor(self, layer: nn.Module, step: Tensor, shape: torch.Size) -> Tensor:
        """(blocks or groups, out / groups, 1, …)."""
        del layer
        return step.transpose(1, 2).flatten(0, 1).reshape(-1, step.shape[1], *[1] * (len(shape) - 2))


@dataclasses.dataclass(frozen=True)
class Projections(LinearMap):
    """The packed projections of ``nn.MultiheadAttention``: three groups for query, key and value."""

    leaf: str = "in_proj_weight"
    bias_leaf: str | None = "in_proj_bias"

    def groups(self, layer: nn.Module) -> int:
        """Three."""
        del layer
        return 3

    def rows(self, layer: nn.Module, call: LayerCall, thin: Tensor | None) -> Iterator[Tensor]:
        """Query, key and value; the shorter ones are filled up with NaN rows, which count as none."""
        del layer, thin
        inputs = [x.reshape(-1, x.shape[-1]) for x in attended(call)]
        longest = max(len(x) for x in inputs)
        yield torch.stack([functional.pad(x, (0, 0, 0, longest - len(x)), value=math.nan) for x in inputs])


@dataclasses.dataclass(frozen=True)
class Heads(LinearMap):
    """The output projection of ``nn.MultiheadAttention``: it reads what the heads put together."""

    leaf: str = "out_proj.weight"
    bias_leaf: str | None = "out_proj.bias"

    def rows(self, layer: nn.Module, call: LayerCall, thin: Tensor | None) -> Iterator[Tensor]:
        """What the heads put out: the layer's output with the identity as its projection."""
        del thin
        weight = layer.get_parameter("out_proj.weight")
        twin = copy.copy(layer)
        identity = nn.Linear(1, 1, bias=False, device="meta")
        size = weight.shape[1]
        identity.weight = nn.Parameter(torch.eye(size, dtype=weight.dtype, device=weight.device), False)
        twin.__dict__["_modules"] = {**dict(layer.named_children()), "out_proj": identity}
        args, kwargs = call
        out = twin(*args, **kwargs)[0]
        yield out.reshape(1, -1, out.shape[-1])


@dataclasses.dataclass(frozen=True)
class Recurrence(LinearMap):
    """One weight of an LSTM, a GRU or a plain recurrent layer; rows are time steps."""

    def rows(self, layer: nn.Module, call: LayerCall, thin: Tensor | None) -> Iterator[Tensor]:
        """What comes in, or the state before."""
        del thin
        rnn = cast(nn.RNNBase, layer)
        level, backward, hidden = gate_position(self.leaf)
        entered, before = states_of(rnn, call, level, backward)
        x = before if hidden else entered
        yield x.reshape(1, -1, x.shape[-1])


@dataclasses.dataclass(frozen=True)
class Cell(LinearMap):
    """One weight of a recurrent cell."""

    def rows(self, layer: nn.Module, call: LayerCall, thin: Tensor | None) -> Iterator[Tensor]:
        """The input, or the state."""
        del thin
        args, kwargs = call
        x, hx = first(call), args[1] if len(args) > 1 else kwargs.get("hx")
        if self.leaf == "weight_hh":
            state = hx[0] if isinstance(hx, tuple) else hx
            x = x.new_zeros(*x.shape[:-1], cast(Any, layer).hidden_size) if state is None else state
        yield x.reshape(1, -1, x.shape[-1])


@dataclasses.dataclass(frozen=True)
class EmbeddingMap(LinearMap):
    """An embedding: every entry of its output is one entry of its weight, so that rounding is all there
    is."""

    bias_leaf: str | None = None

    def rows(self, layer: nn.Module, call: LayerCall, thin: Tensor | None) -> Iterator[Tensor]:
        """None: see :func:`identity_moments`."""
        del layer, call, thin
        yield from ()


@dataclasses.dataclass(frozen=True)
class BlockedMap(LinearMap):
    """A map with more inputs than one Gram matrix may have: blocks of its columns, each solved for itself."""

    whole: LinearMap = dataclasses.field(kw_only=True)
    block: int = dataclasses.field(kw_only=True)

    own_targets = True

    @property
    def columns_dim(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As of the whole."""
        return self.whole.columns_dim

    @property
    def rows_dim(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As of the whole."""
        return self.whole.rows_dim

    def matrix(self, layer: nn.Module, weight: Tensor) -> Tensor:
        """(blocks, r, n / blocks)."""
        matrix = self.whole.matrix(layer, weight)[0]
        return matrix.unflatten(1, (-1, even(matrix.shape[1], self.block))).transpose(0, 1)

    def groups(self, layer: nn.Module) -> int:
        """How many blocks there are."""
        return len(self.matrix(layer, layer.get_parameter(self.leaf)))

    def tensor(self, layer: nn.Module, matrix: Tensor, shape: torch.Size) -> Tensor:
        """The way back."""
        return self.whole.tensor(layer, matrix.transpose(0, 1).flatten(1)[None], shape)

    def step_tensor(self, layer: nn.Module, step: Tensor, shape: torch.Size) -> Tensor:
        """One step for each row of each block."""
        return self.whole.step_tensor(layer, step.transpose(0, 1).flatten(1)[None], shape)

    def positions(self, layer: nn.Module, call: LayerCall) -> int:
        """As of the whole."""
        return self.whole.positions(layer, call)

    def has_lags(self, layer: nn.Module) -> bool:
        """As of the whole, where a block holds whole channels."""
        return isinstance(self.whole, ConvolutionMap) and self.whole.has_lags(layer, self.groups(layer))

    def lags(self, layer: nn.Module, call: LayerCall) -> Lags | None:
        """Where the whole has them and a block holds whole channels."""
        whole = self.whole
        return whole.lags_of(layer, call, self.groups(layer)) if isinstance(whole, ConvolutionMap) else None

    def rows(self, layer: nn.Module, call: LayerCall, thin: Tensor | None) -> Iterator[Tensor]:
        """The rows of the whole in blocks."""
        for x in self.whole.rows(layer, call, thin):
            yield x[0].unflatten(1, (-1, even(x.shape[2], self.block))).transpose(0, 1)


def even(columns: int, most: int) -> int:
    """The largest divisor of ``columns`` that is at most so many."""
    return next(size for size in range(min(most, columns), 0, -1) if columns % size == 0)


def first(call: LayerCall) -> Tensor:
    """The first argument of a call."""
    args, kwargs = call
    return args[0] if args else next(iter(kwargs.values()))


def attended(call: LayerCall) -> list[Tensor]:
    """Query, key and value of a call."""
    args, kwargs = call
    return [args[k] if k < len(args) else kwargs[name] for k, name in enumerate(("query", "key", "value"))]


def border(layer: Any) -> list[int]:
    """What a convolution adds on each side, as ``functional.pad`` takes it."""
    if layer.padding == "same":
        total = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
        pairs = [(t // 2, t - t // 2) for t in total]
    else:
        sides = (0,) * len(layer.kernel_size) if layer.padding == "valid" else layer.padding
        pairs = [(p, p) for p in sides]
    return [side for pair in reversed(pairs) for side in pair]


def patch_view(x: Tensor, layer: Any, stride: tuple[int, ...]) -> Tensor:
    """All patches, as a view: (samples, channels, *positions, *kernel)."""
    for k, (size, apart) in enumerate(zip(layer.kernel_size, layer.dilation, strict=True)):
        x = x.unfold(2 + k, apart * (size - 1) + 1, stride[k])[..., ::apart]
    return x


def chosen(view: Tensor, dims: int, thin: Tensor | None) -> Tensor:
    """(samples, *positions, channels, *kernel) → (samples, positions, channels, *kernel), some positions
    alone."""
    if thin is None:
        return view.flatten(1, dims) if dims > 1 else view
    index = torch.unravel_index(thin.to(view.device), view.shape[1 : 1 + dims])
    return view[(slice(None), *index)]


def gate_position(leaf: str) -> tuple[int, bool, bool]:
    """``weight_hh_l1_reverse`` → (layer 1, backward, of the state)."""
    words = leaf.split("_")
    return int(words[2][1:]), words[-1] == "reverse", words[1] == "hh"


def states_of(rnn: nn.RNNBase, call: LayerCall, level: int, backward: bool) -> tuple[Tensor, Tensor]:
    """What enters a layer of a stacked recurrent network, and its state before each step; time first."""
    args, kwargs = call
    x, hx = first(call), args[1] if len(args) > 1 else kwargs.get("hx")
    x = x[:, None] if x.ndim == 2 else x.transpose(0, 1) if rnn.batch_first else x
    directions = 2 if rnn.bidirectional else 1
    start = [None, None] if hx is None else list(hx) if isinstance(hx, tuple) else [hx, None]
    start = [s if s is None or s.ndim == 3 else s[:, None] for s in start]
    for number in range(level + 1):
        outputs: list[Tensor] = []
        for direction in range(directions):
            index = number * directions + direction
            zero = x.new_zeros(1, x.shape[1], rnn.hidden_size)
            h, c = (zero if s is None else s[index : index + 1] for s in start)
            turned = x.flip(0) if direction else x
            out = one_layer(rnn, turned, h, c, number, bool(direction))
            if number == level and bool(direction) == backward:
                return turned, torch.cat([h, out[:-1]])
            outputs.append(out.flip(0) if direction else out)
        x = torch.cat(outputs, -1)
    raise AssertionError("no such layer")


def one_layer(rnn: nn.RNNBase, x: Tensor, h: Tensor, c: Tensor, level: int, backward: bool) -> Tensor:
    """The states of one layer in one direction."""
    tail = f"_l{level}{'_reverse' if backward else ''}"
    leaves = ["weight_ih", "weight_hh"] + (["bias_ih", "bias_hh"] if rnn.bias else [])
    weights: list[Tensor] = [rnn.get_parameter(leaf + tail) for leaf in leaves]
    settings = rnn.bias, 1, 0.0, False, False, False
    if rnn.mode == "LSTM":
        return torch.lstm(x, (h, c), weights, *settings)[0]
    run = {"GRU": torch.gru, "RNN_TANH": torch.rnn_tanh, "RNN_RELU": torch.rnn_relu}[rnn.mode]
    return run(x, h, weights, *settings)[0]


def maps_of(model: nn.Module) -> tuple[list[LinearMap], dict[str, str]]:
    """All linear maps of a model, and why other weights stay: {name: reason}."""
    maps: list[LinearMap] = []
    for name, layer in model.named_modules():
        maps += [in_blocks(layer, one) for one in maps_in(name, layer)]
    mapped = {id(m.weight_of(model)) for m in maps}
    reasons = {
        name: f"{kind_of(model, name)} is not a layer that compress supports"
        for name, p in model.named_parameters()
        if p.ndim > 1 and id(p) not in mapped
    }
    return maps, reasons


def kind_of(model: nn.Module, name: str) -> str:
    """The class of the module that owns a parameter."""
    return type(model.get_submodule(name.rpartition(".")[0])).__name__


def in_blocks(layer: nn.Module, one: LinearMap) -> LinearMap:
    """The map itself, or in blocks where it has too many inputs."""
    if isinstance(one, EmbeddingMap):
        return one
    groups, _, inputs = one.matrix(layer, layer.get_parameter(one.leaf)).shape
    if inputs <= LIMIT or groups > 1:
        return one
    return BlockedMap(one.module, one.leaf, None, whole=one, block=LIMIT // 2)


def maps_in(name: str, layer: nn.Module) -> list[LinearMap]:
    """The linear maps of one layer."""
    if isinstance(layer, nn.MultiheadAttention | FewerHeads):
        packed = [Projections(name)] if isinstance(layer.in_proj_weight, Tensor) else []
        return [*packed, Heads(name)]
    if isinstance(layer, nn.LSTM | nn.GRU | nn.RNN):
        names = [n for n, p in layer.named_parameters() if p.ndim > 1 and "_hr_" not in n]
        plain = layer.proj_size == 0
        return [
            Recurrence(name, n, n.replace("weight", "bias") if layer.bias else None) for n in names if plain
        ]
    if isinstance(layer, nn.LSTMCell | nn.GRUCell | nn.RNNCell):
        return [Cell(name, f"weight_{k}", f"bias_{k}" if layer.bias else None) for k in ("ih", "hh")]
    if keeps_forward(layer, (nn.Linear,)) and "NonDynamically" not in type(layer).__name__:
        return [DenseMap(name)]
    if is_conv1d(layer):
        return [Turned(name)]
    if keeps_forward(layer, CONV):
        return [ConvolutionMap(name)]
    if keeps_forward(layer, TRANSPOSED):
        return [Transposed(name)]
    return [EmbeddingMap(name)] if keeps_forward(layer, (nn.Embedding,)) else []


def keeps_forward(layer: nn.Module, kinds: tuple[type[nn.Module], ...]) -> bool:
    """Whether a layer is one of torch's and computes as torch's does."""
    return any(isinstance(layer, kind) and type(layer).forward is kind.forward for kind in kinds)
