"""Which layer feeds which: a call of a model seen from outside, whatever its code looks like."""

import dataclasses
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from torchlift.flow.ops import Flow, Op, OpKind, TensorFunction
from torchlift.loss import call, evaluating
from torchlift.tree import each, leaves

LAYERS = frozenset({"linear", "conv1d", "conv2d", "conv3d"})
ACTIVATIONS = frozenset(
    {
        "relu", "relu6", "leaky_relu", "prelu", "rrelu", "elu", "selu", "celu", "threshold", "clamp", "clip",
        "gelu", "silu", "mish", "softplus", "softsign", "sigmoid", "tanh", "logsigmoid", "hardtanh",
        "hardsigmoid", "hardswish", "hardshrink", "softshrink", "tanhshrink",
    }
)  # fmt: skip
PASSIVE = frozenset({"get", "set", "dropout", "contiguous", "detach", "clone"})
ADDITIONS = frozenset({"add", "radd", "iadd"})
POOLS = frozenset({"max_pool1d", "max_pool2d", "max_pool3d"})

Observe = Callable[[Op, Tensor, Tensor], None]


class Recorder(TorchFunctionMode):
    """Notes every operation; a tensor changed in place is a new value."""

    def __init__(self, model: nn.Module, observe: Observe | None) -> None:
        super().__init__()
        self.owners = {
            id(p): name for name, module in model.named_modules() for p in module.parameters(recurse=False)
        }
        self.owners |= {
            id(b): name for name, module in model.named_modules() for b in module.buffers(recurse=False)
        }
        self.observe = observe
        self.ops: list[Op] = []
        self.stack: list[str] = [""]
        self.numbers: dict[int, int] = {}
        self.guards: dict[int, weakref.ref[Tensor]] = {}
        self.count = 0
        self.calls: dict[str, int] = {}
        self.op_of: dict[int, Op] = {}

    def number(self, tensor: Tensor, fresh: bool = False) -> int:
        """The value a tensor holds now."""
        if fresh or id(tensor) not in self.numbers:
            self.count += 1
            self.remember(tensor, self.count)
        return self.numbers[id(tensor)]

    def remember(self, tensor: Tensor, number: int) -> None:
        """Until the tensor is gone: its id may then be another's."""
        key = id(tensor)
        self.numbers[key] = number
        self.guards[key] = weakref.ref(tensor, lambda _: self.numbers.pop(key, None))

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func)).strip("_")
        if name in PASSIVE or (name == "pad" and not any(args[1])):
            return self.passed(func, args, kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        flowing = [t for t in tensors if id(t) not in self.owners]
        inputs = tuple(self.number(t) for t in flowing)
        versions = {id(t): t._version for t in tensors}  # pyright: ignore[reportPrivateUsage]
        op = self.op(name, func, args, kwargs, tensors, inputs)
        if self.observe is not None and op.bend is not None:
            self.observe(op, flowing[0], op.bend(flowing[0]))
        result = func(*args, **kwargs)
        fresh = [
            t
            for t in tree_leaves(result)
            if isinstance(t, Tensor) and versions.get(id(t)) != t._version  # pyright: ignore[reportPrivateUsage]
        ]
        for tensor in fresh:
            done = dataclasses.replace(op, output=self.number(tensor, fresh=True))
            self.ops.append(done)
            self.op_of[done.output] = done
        return result

    def passed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operation that gives back the values it takes."""
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and args and isinstance(args[0], Tensor) and result is not args[0]:
            self.remember(result, self.number(args[0]))
        return result

    def op(
        self,
        name: str,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: list[Tensor],
        inputs: tuple[int, ...],
    ) -> Op:
        """What an operation is."""
        owner = next((self.owners[id(t)] for t in tensors[1:] if id(t) in self.owners), None)
        if name in LAYERS and owner is not None:
            self.calls[owner] = self.calls.get(owner, 0) + 1
            return Op("layer", name, owner, inputs, 0, owner)
        if name == "batch_norm" and owner is not None and isinstance(args[1], Tensor):  # running statistics
            return Op("norm", name, owner, inputs, 0, self.source(inputs[:1]))
        if name in ACTIVATIONS:
            return Op(
                "activation",
                name,
                self.stack[-1],
                inputs,
                0,
                self.source(inputs),
                pure_activation(func, args, kwargs),
            )
        plus = name in ADDITIONS and len(inputs) == 2 and kwargs.get("alpha", 1) == 1
        kind: OpKind = "add" if plus else "other"
        window = pool_window(int(name[-2]), *args[1:], **kwargs) if name in POOLS else ()
        return Op(kind, name, self.stack[-1], inputs, 0, "", window=window)

    def source(self, inputs: tuple[int, ...]) -> str:
        """The layer that made a value, through norms."""
        op = self.op_of.get(inputs[0]) if inputs else None
        return op.layer if op is not None and op.kind in ("layer", "norm") else ""


def pure_activation(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TensorFunction:
    """An activation with its settings, as a function that changes nothing (and holds no input)."""
    name, others = func.__name__, args[1:]
    if name.endswith("_"):
        func = getattr(Tensor, name[:-1], None) or getattr(functional, name[:-1])
    settings = {key: False if key == "inplace" else value for key, value in kwargs.items() if key != "input"}
    return lambda z: func(z, *others, **settings)


def pool_window(
    dims: int,
    kernel_size: Any = (),
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    **others: Any,
) -> tuple[int, ...]:
    """The window of a max pooling; empty where windows overlap, are dilated or reach over the border."""
    del others

    def sizes(value: Any) -> tuple[int, ...]:
        return (value,) * dims if isinstance(value, int) else tuple(value)

    kernel = sizes(kernel_size)
    apart = sizes(stride) if stride is not None and stride != [] else kernel
    plain = not any(sizes(padding)) and set(sizes(dilation)) == {1} and not ceil_mode
    return kernel if apart == kernel and plain else ()


@contextmanager
def recording(model: nn.Module, observe: Observe | None = None) -> Generator[Recorder]:
    """Record what the model does inside the block; it is in evaluation mode there, without gradients."""
    recorder = Recorder(model, observe)

    def enter(name: str) -> Any:
        return lambda *_: recorder.stack.append(name)

    def leave(*_: Any) -> None:
        recorder.stack.pop()

    hooks = [module.register_forward_pre_hook(enter(name)) for name, module in model.named_modules()]
    hooks += [module.register_forward_hook(leave) for module in model.modules()]
    try:
        with evaluating(model), torch.no_grad(), recorder:
            yield recorder
    finally:
        for hook in hooks:
            hook.remove()


def flow(model: nn.Module, x: Any) -> Flow:
    """The operations of ``model(x)``."""
    with recording(model) as recorder:
        result = call(model, x)
    ends = {recorder.numbers[id(t)] for t in tree_leaves(result) if id(t) in recorder.numbers}
    return Flow(tuple(recorder.ops), frozenset(ends))


def chunks(x: Any, size: int = 512) -> Iterator[Any]:
    """Inputs in memory (a tensor, or a tree of them) in pieces of so many samples."""
    for start in range(0, len(next(leaves(x))), size):
        yield each(lambda t, start=start: t[start : start + size], x)
