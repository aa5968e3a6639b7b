"""Counting operations where torch's own counter looks away."""

import contextlib
import math
from collections.abc import Callable, Generator
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch.utils import _python_dispatch
from torch.utils.flop_counter import (
    FlopCounterMode,
    _FlopCounterMode,  # pyright: ignore[reportPrivateUsage]  (no other way)
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from torchlift.loss import plain_attention

TensorShape = torch.Size


def rnn(inputs: TensorShape, first: TensorShape, second: TensorShape, *_: Any, **__: Any) -> int:
    """2 · steps · batch · (size of both weights) for one fused layer, as two matrix products would count."""
    return 2 * inputs[0] * inputs[1] * (first.numel() + second.numel())


def rnn_backward(*args: Any, **kwargs: Any) -> int:
    """Twice the forward pass: gradients of inputs and of weights."""
    return 2 * rnn(*args, **kwargs)


def attention_flops(query: TensorShape, key: TensorShape, value: TensorShape, *_: Any, **__: Any) -> int:
    """As torch counts attention elsewhere: a causal mask saves nothing."""
    return sdpa_flop_count(query, key, value)


def attention_backward(
    gradient: TensorShape, query: TensorShape, key: TensorShape, value: TensorShape, *_: Any, **__: Any
) -> int:
    """As torch counts it elsewhere."""
    return sdpa_backward_flop_count(gradient, query, key, value)


def factored(matrix: TensorShape, *_: Any, **__: Any) -> int:
    """n³/3 for a Cholesky factor."""
    return matrix.numel() * matrix[-1] // 3


def inverted(matrix: TensorShape, *_: Any, **__: Any) -> int:
    """2n³/3 for an inverse from its factor; elimination costs as much before its right sides."""
    return 2 * matrix.numel() * matrix[-1] // 3


def substituted(right: TensorShape, factor: TensorShape, *_: Any, **__: Any) -> int:
    """2n²k for k right sides and a factor that is there."""
    return 2 * right.numel() * factor[-1]


def solved(matrix: TensorShape, right: TensorShape, *_: Any, **__: Any) -> int:
    """2n³/3 + 2n²k."""
    return inverted(matrix) + substituted(right, matrix)


def qr(matrices: TensorShape, *_: Any, **__: Any) -> int:
    """4 n² (m − n/3) of each: Householder's reduction and its orthogonal factor (Golub and Van Loan, 5.2)."""
    *batch, m, n = matrices
    m, n = max(m, n), min(m, n)
    return math.prod(batch) * round(4 * n**2 * (m - n / 3))


def eigh(matrices: TensorShape, uplo: str = "L", vectors: bool = True, **_: Any) -> int:
    """9 n³ of each symmetric matrix with its eigenvectors, 4/3 n³ without (Golub and Van Loan, 8.3)."""
    return round(math.prod(matrices[:-2]) * (9 if vectors else 4 / 3) * matrices[-1] ** 3)


FUSED: dict[Any, Callable[..., int]] = {
    torch.ops.aten.mkldnn_rnn_layer: rnn,
    torch.ops.aten.mkldnn_rnn_layer_backward: rnn_backward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention_flops,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
    torch.ops.aten.linalg_cholesky_ex: factored,
    torch.ops.aten.cholesky_inverse: inverted,
    torch.ops.aten.cholesky_solve: substituted,
    torch.ops.aten._linalg_solve_ex: solved,
    torch.ops.aten.linalg_qr: qr,
    torch.ops.aten._linalg_eigh: eigh,
}
"""Kernels of LSTMs and attention on the CPU, and of linear algebra, which torch counts as nothing."""


INSPECTIONS = {"is_contiguous", "is_strides_like_format", "is_non_overlapping_and_dense"} | {
    f"{sym}{name}"
    for sym in ("", "sym_")
    for name in ("size", "stride", "storage_offset", "numel", "dim", "is_contiguous")
}
"""Operations that only look at a tensor, which torch treats apart."""


class Everywhere(contextlib.nullcontext[None]):
    """In place of torch's tracker of modules, whose hooks do not support gradients inside gradients."""

    parents = ("Global",)


def product_flops(left: Tensor, right: Tensor, *_: Any) -> int:
    """Of one matrix with another, or of each of a batch."""
    return 2 * left.numel() * right.shape[-1]


PRODUCTS: dict[Any, Callable[..., int]] = {
    torch.ops.aten.mm: product_flops,
    torch.ops.aten.bmm: product_flops,
    torch.ops.aten.addmm: lambda _, *both: product_flops(*both),
    torch.ops.aten.baddbmm: lambda _, *both: product_flops(*both),
}
"""What block solvers call thousands of times: as torch counts it, without its trees of shapes."""


class Counting(_FlopCounterMode):
    """Torch's counter, which takes every operation apart to look for others inside; here matrix products and
    what is whole and costs nothing run at once."""

    formulas: ClassVar[dict[int, tuple[Any, Callable[..., int] | None]]] = {}
    """Operations that run at once, by their address: torch computes their hash in Python."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation and count it."""
        entry = self.formulas.get(id(func))
        if entry is None:
            if not self.runs_at_once(func):
                return super().__torch_dispatch__(func, types, args, kwargs)
            entry = self.formulas[id(func)] = (func, PRODUCTS.get(func.overloadpacket))
        if entry[1] is not None:
            self.counter.flop_counts["Global"]["products"] += entry[1](*args)
        return func(*args, **kwargs or {})

    def runs_at_once(self, operation: Any) -> bool:
        """Whether it computes something, in one piece, that is a product or that no formula counts."""
        return (
            isinstance(operation, OpOverload)
            and operation.namespace == "aten"
            and (
                operation.overloadpacket in PRODUCTS
                or operation.overloadpacket not in self.counter.flop_registry
            )
            and not operation.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)
            and operation.overloadpacket.__name__ not in INSPECTIONS
        )


@contextlib.contextmanager
def uncounted() -> Generator[None]:
    """Checks are not part of what a method costs."""
    with _python_dispatch._disable_current_modes():  # pyright: ignore[reportPrivateUsage]  (no other way)
        yield


def count_flops(function: Callable[[], object]) -> int:
    """Floating-point operations of a call: matrix products, convolutions, attention, recurrence,
    QR and eigenvectors."""
    counter = FlopCounterMode(display=False, custom_mapping=FUSED)
    counter.mod_tracker = cast(Any, Everywhere())
    with plain_attention(), Counting(counter):
        function()
    return int(counter.get_total_flops())
