"""Lifted states to first order: u_l = σ(v_l − (β/μ)·signal from above), in one pass down any graph.

Stationary states of Σ_l μ B_l(u_l, v_l) + β·loss satisfy f'(u_l) = v_l − s_l/μ, that is u_l = σ(v_l − s_l/μ),
where s_l is what the layers above ask of u_l. The gap μ(σ(v_l) − u_l) is the slope of the energy in v_l, and
its image under the adjoint of the affine map below is s_{l−1}: a reverse pass in which every activation
answers by the difference of two of its values where back-propagation has its derivative, to which it tends as
β → 0.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.convex.activations import Activation
from torchlift.methods.lifted.unified import Unified


class _Nudge(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v: Tensor, nudged: "Nudged") -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        u = nudged.activation(v)
        ctx.save_for_backward(v, u)
        ctx.node, ctx.step = nudged, nudged.step
        return u

    @staticmethod
    def backward(ctx: Any, signal: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        v, u = ctx.saved_tensors
        nudged = ctx.node.activation(torch.sub(v, signal, alpha=ctx.step))
        ctx.node.last = nudged, v.detach()
        return (u - nudged).div_(ctx.step), None


class Nudged(nn.Module):
    """σ, whose reverse pass is (σ(v) − σ(v − step·signal))/step."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.activation, self.step = activation, 1.0
        self.last: tuple[Tensor, Tensor] | None = None
        """u and v of the last reverse pass."""

    def forward(self, v: Tensor) -> Tensor:
        """σ(v)."""
        return _Nudge.apply(v, self)  # pyright: ignore[reportReturnType]

    def energy(self) -> float:
        """ΣB(u, v) of the last reverse pass."""
        return 0.0 if self.last is None else float(self.activation.penalty(*self.last).sum())


class NudgedNetwork:
    """A network with its activations nudged: parameters and affine maps are its own."""

    def __init__(self, network: Unified) -> None:
        self.network, self.names = network, network.labels()
        self.activations = [Nudged(activation) for activation in network.activations]

    def __call__(self, x: Tensor, steps: Sequence[float]) -> Tensor:
        """The network's output; a step is β/μ times the number of samples the mean is over."""
        for activation, step in zip(self.activations, steps, strict=True):
            activation.step = step
        return self.network.run(x, self.activations)
