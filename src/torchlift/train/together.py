"""Several processes that compute as one: batch statistics over all of them, noise drawn by global sample.

Every process holds its rows of a batch and the random streams of all. What happens inside a sample is its own
affair; where samples meet, or a stream gives each sample its part, the processes have to ask one another.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from torchlift.errors import DataError

NOISE: tuple[Callable[..., Tensor], ...] = (
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
)
"""``function(x, p, training, inplace)``: rows of the result are rows of x, each with noise of its own."""


class Together(TorchFunctionMode):
    """While it lasts, this process has the rows from ``start`` to ``stop`` of a batch of ``whole``.

    ``batch_norm`` takes its statistics over all processes; dropout draws for the whole batch, and takes
    these rows' part, so that all streams stay where those of one process would be. What is not told through
    these functions (dropout inside torch's own attention and recurrent layers) is each process's own.
    """

    def __init__(self, start: int, stop: int, whole: int) -> None:
        super().__init__()
        self.start, self.stop, self.whole = start, stop, whole

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        options = kwargs or {}
        if func is functional.batch_norm:
            return together_normed(*args, **options)
        return self.drawn(func, *args, **options) if func in NOISE else func(*args, **options)

    def drawn(
        self,
        func: Callable[..., Tensor],
        input: Tensor,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Tensor:
        """The noise of the whole batch, on these rows; a sample may be several rows (heads, windows)."""
        each, rest = divmod(len(input), self.stop - self.start) if input.ndim else (0, 1)
        if not training or rest:
            return func(input, p, training, inplace)
        before, after = (
            input.new_zeros(each * rows, *input.shape[1:]) for rows in (self.start, self.whole - self.stop)
        )
        drawn = func(torch.cat([before, input, after]), p, training).narrow(0, len(before), len(input))
        return input.copy_(drawn) if inplace else drawn


def together_normed(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """γ (x − μ) / √(σ² + ε) + β with μ and σ² over the batches of all processes, gradients too.

    σ² is the mean of (x − μ)² around the common μ, in two passes: E[x²] − μ² would lose its digits.
    """
    if not training:
        return functional.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    x = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    axes, shape = [0, *range(2, x.ndim)], (1, -1, *[1] * (x.ndim - 2))
    sums = total(torch.cat([x.sum(axes), x.new_tensor([x.numel() / x.shape[1]])]))
    count = sums[-1].detach()
    if count <= 1:
        raise DataError("batch normalization needs more than one value per channel: raise batch_size.")
    mean = sums[:-1] / count
    centered = x - mean.view(shape)
    variance = total(centered.square().sum(axes)) / count
    with torch.no_grad():
        if running_mean is not None:
            running_mean.lerp_(mean.to(running_mean), momentum)
        if running_var is not None:
            running_var.lerp_((variance * count / (count - 1)).to(running_var), momentum)
    scaled = centered * (variance + eps).rsqrt().view(shape)
    scaled = scaled if weight is None else scaled * weight.view(shape)
    return (scaled if bias is None else scaled + bias.view(shape)).to(input.dtype)


def total(values: Tensor) -> Tensor:
    """The sum over processes, through which gradients flow back to all of them."""
    return Total.apply(values)  # pyright: ignore[reportReturnType]


class Total(torch.autograd.Function):
    """y = Σ x over processes; each has a loss of its own, so dΣL/dx = Σ dL/dy."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        """The sum."""
        del ctx
        return summed_copy(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The sum of the gradients."""
        del ctx
        return summed_copy(gradient)


def summed_copy(values: Tensor) -> Tensor:
    """The sum over processes of a copy."""
    values = values.contiguous().clone()
    distributed.all_reduce(values)
    return values
