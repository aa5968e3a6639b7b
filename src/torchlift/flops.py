"""Counting operations where torch's own counter looks away."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

Shape = torch.Size


def rnn(inputs: Shape, first: Shape, second: Shape, *_: Any, **__: Any) -> int:
    """2 · steps · batch · (size of both weights) for one fused layer, as two matrix products would count."""
    return 2 * inputs[0] * inputs[1] * (first.numel() + second.numel())


def rnn_backward(*args: Any, **kwargs: Any) -> int:
    """Twice the forward pass: gradients of inputs and of weights."""
    return 2 * rnn(*args, **kwargs)


def attention(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    """As torch counts attention elsewhere: a causal mask saves nothing."""
    return sdpa_flop_count(query, key, value)


def attention_backward(gradient: Shape, query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    """As torch counts it elsewhere."""
    return sdpa_backward_flop_count(gradient, query, key, value)


FUSED: dict[Any, Callable[..., int]] = {
    torch.ops.aten.mkldnn_rnn_layer: rnn,
    torch.ops.aten.mkldnn_rnn_layer_backward: rnn_backward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
}
"""Kernels of LSTMs and attention on the CPU, which torch counts as nothing."""


class Everywhere:
    """In place of torch's tracker of modules, whose hooks do not bear ``autograd.grad``: one count."""

    parents = frozenset({"Global"})

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


def count_flops(function: Callable[[], object]) -> int:
    """Floating-point operations of a call: matrix products, convolutions, attention, recurrence."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # whole encoder layers in one kernel
    try:
        counter: Any = FlopCounterMode(display=False, custom_mapping=FUSED)
        counter.mod_tracker = Everywhere()
        with counter:
            function()
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return int(counter.get_total_flops())
