# pyright: reportPrivateUsage=false
"""The first call of a model from a file: tried without memory before anything is computed.

    bytes of each operation (what it reads, makes and lays out) ≤ limit + 256 · bytes of the inputs,
    of all results together ≤ 16 times as many,
    operations ≤ 64 · limit · samples

A small file can ask for a large result (Upsample, padding, a shared layer called ten thousand times); the
shapes alone tell. The guard is a forward hook; it goes when the first call has passed.
"""

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from torchlift.packed.budget import PackedError, printed
from torchlift.packed.trees import Guardian

INPUTS, TOGETHER, OPERATIONS = 256, 16, 64
KINDS = 100_000
"""Operations that a trial may take, about a second."""


class Guard(Guardian):
    """Tries the first call of a model without memory."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Before a call: try it, then go."""
        if torch.compiler.is_compiling() or torch.compiler.is_exporting():
            return
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if leaves and all(type(leaf) in (Tensor, nn.Parameter) for leaf in leaves):
            try_without_memory(module, args, kwargs, leaves, self.limit)
            release(module)


def guard_first_call(module: nn.Module, limit: int) -> nn.Module:
    """The module with a guard before its first call."""
    module.register_forward_pre_hook(Guard(limit), with_kwargs=True)
    return module


def release(module: nn.Module) -> None:
    """Take the guards of a module away."""
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, Guard):
            del module._forward_pre_hooks[key]
            module._forward_pre_hooks_with_kwargs.pop(key, None)


def without_memory(module: nn.Module) -> nn.Module:
    """A copy of a model on the meta device; its weights are not copied."""
    twins: dict[int, Any] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        twin = torch.empty_like(tensor, device="meta")
        twins[id(tensor)] = nn.Parameter(twin, False) if isinstance(tensor, nn.Parameter) else twin
    flat = {id(layer): layer.__dict__.get("_flat_weights") for layer in module.modules()}
    for weights in flat.values():
        if weights is not None:
            twins[id(weights)] = [twins.get(id(weight)) for weight in weights]
    twin = copy.deepcopy(module, twins)
    for layer in twin.modules():
        for hook in list(layer._forward_pre_hooks):
            if isinstance(layer._forward_pre_hooks[hook], Guard):
                del layer._forward_pre_hooks[hook]
                layer._forward_pre_hooks_with_kwargs.pop(hook, None)
        if isinstance(layer, nn.RNNBase):
            layer.forward = Recurrent(layer)
    return twin


class Recurrent:
    """The shapes of a recurrent layer's results, without walking through its steps."""

    def __init__(self, layer: nn.RNNBase) -> None:
        self.layer = layer

    def __call__(self, x: Any, hx: Any = None) -> Any:
        """Output and last states."""
        layer = self.layer
        if not isinstance(x, Tensor):  # packed sequences: as large as what they hold
            return x, hx
        if x.ndim not in (2, 3) or x.shape[-1] != layer.input_size:
            raise RuntimeError(f"a recurrent layer of {layer.input_size} features got {tuple(x.shape)}.")
        both, outer = 2 if layer.bidirectional else 1, layer.proj_size or layer.hidden_size
        batch = [x.shape[0 if layer.batch_first else 1]] if x.ndim == 3 else []
        steps = x.numel() // max(1, x.shape[-1])
        meter = Meter.current
        if meter is not None:
            meter.count(2 * steps * sum(p.numel() for p in layer.parameters()))
        inner = x.new_empty((steps, 4 * both * layer.hidden_size * layer.num_layers))
        del inner
        out = x.new_empty((*x.shape[:-1], both * outer))
        state = x.new_empty((both * layer.num_layers, *batch, outer))
        if isinstance(layer, nn.LSTM):
            return out, (state, x.new_empty((both * layer.num_layers, *batch, layer.hidden_size)))
        return out, state


class Meter(TorchDispatchMode):
    """Counts what every operation makes and computes."""

    current: "Meter | None" = None

    def __init__(self, most: int, operations: int) -> None:
        super().__init__()
        self.most, self.left, self.operations, self.calls = most, TOGETHER * most, operations, KINDS

    def count(self, operations: int) -> None:
        """So many more operations."""
        self.operations -= operations
        if self.operations < 0:
            raise PackedError("its first call would compute for too long; raise limit= in load.")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One operation on tensors without memory."""
        result = func(*args, **(kwargs or {}))
        size = sum(result_bytes(leaf) for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
        size += workspace(func, args, result)
        self.left, self.calls = self.left - size, self.calls - 1
        inputs = sum(result_bytes(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
        if size + inputs > self.most or self.left < 0:
            raise PackedError(
                f"its first call would take more than {printed(self.most)}; raise limit= in load."
            )
        if self.calls < 0:
            raise PackedError("its first call would take too many operations; raise limit= in load.")
        packet = func._overloadpacket
        if packet in flop_registry:
            self.count(int(flop_registry[packet](*args, **(kwargs or {}), out_val=result)))
        self.count(size + window_entries(func, args, result))
        return result


def result_bytes(tensor: Tensor) -> int:
    """Bytes of a result; a dimension of zero counts as one, since loops run over the others."""
    return math.prod(max(n, 1) for n in tensor.shape) * tensor.element_size()


def window_entries(func: Any, args: Any, result: Any) -> int:
    """Entries that pooling looks at: each of its results has a window."""
    if "pool" not in func.__name__ or "adaptive" in func.__name__ or len(args) < 2:
        return 0
    out = next((leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)), None)
    window = args[1] if isinstance(args[1], list | tuple) else [args[1]]
    return 0 if out is None else out.numel() * math.prod(int(n) for n in window if isinstance(n, int))


def workspace(func: Any, args: Any, result: Any) -> int:
    """Bytes that a convolution may lay its input out in: one column of the kernel's size for each result."""
    if func._overloadpacket is not torch.ops.aten.convolution or not isinstance(result, Tensor):
        return 0
    weight, out, x = args[1], result, args[0]
    positions = math.prod(x.shape[2:]) if args[6] else math.prod(out.shape[2:])
    return math.prod(weight.shape[1:]) * positions * out.element_size()


def try_without_memory(module: nn.Module, args: Any, kwargs: Any, leaves: list[Tensor], limit: int) -> None:
    """Run a call on shapes alone, within what the limit allows."""
    most = limit + INPUTS * sum(result_bytes(leaf) for leaf in leaves)
    samples = max(1, *(leaf.shape[0] if leaf.ndim else 1 for leaf in leaves))
    args, kwargs = tree_map(
        lambda leaf: torch.empty_like(leaf, device="meta") if isinstance(leaf, Tensor) else leaf,
        (args, kwargs),
    )
    twin = without_memory(module)
    meter = Meter(most, OPERATIONS * limit * samples)
    try:
        with torch.no_grad(), meter:
            Meter.current = meter
            twin(*args, **kwargs)
    finally:
        Meter.current = None
