"""The kinds of inversion behind one face: chains of layers, graphs, convex residual networks, the rivals."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from torchlift.convex.activations import Activation, Linear
from torchlift.convex.descent import Certificate, Descent, Stopping, fista
from torchlift.convex.functions import Box, Function, Zero, samples
from torchlift.inversion import deep, forward, rival, single
from torchlift.inversion.fidelity import Fidelity
from torchlift.inversion.reading import AffineStage, forward_states
from torchlift.inversion.residual import MonotoneResidual, ResidualEnergy, StatePotential
from torchlift.inversion.result import InversionError


class InversionProblem(Protocol):
    """What ``tl.invert`` needs of a kind of inversion."""

    @property
    def options(self) -> tuple[str, ...]:
        """The options of ``tl.invert`` that are for this kind alone."""
        ...

    def method(self, reg: Function) -> str:
        """The name of the solver for this regularizer."""
        ...

    def solve(self, reg: Function, start: Tensor | None, stopping: Stopping) -> Descent:
        """The minimizer, from the start or from scratch."""
        ...

    def output(self, x: Tensor) -> Tensor:
        """N(x)."""
        ...

    def fidelity(self, x: Tensor) -> Tensor:
        """How far N(x) is from y, one number per sample."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class ChainInversion:
    """u_l = σ_l(A_l u_{l−1} + b_l): one stage is convex, several go block by block."""

    stages: Sequence[AffineStage]
    y: Tensor
    box: Box | None
    wanted: str
    blocks: deep.Blocks

    @property
    def options(self) -> tuple[str, ...]:
        """Those of sweeps."""
        return ("mu", "blocks") if len(self.stages) > 1 else ()

    def method(self, reg: Function) -> str:
        """Of several stages: "bcd", or "bcd+lbfgs" unless set otherwise; of one the convex solver."""
        if len(self.stages) == 1:
            return single.auto_solver(reg, self.box) if self.wanted == "auto" else self.wanted
        return "bcd" if self.wanted == "bcd" else "bcd+lbfgs"

    def solve(self, reg: Function, start: Tensor | None, stopping: Stopping) -> Descent:
        """See ``single`` and ``deep``."""
        if len(self.stages) > 1:
            return self._deep(reg, start, stopping)
        zero = self.y.new_zeros(len(self.y), *self.stages[0].affine.shape)
        first = start if start is not None else zero if self.box is None else self.box.prox(zero)
        fidelity = Fidelity(self.stages[0].affine, self.stages[0].activation, self.y)
        return single.solve(fidelity, reg, self.box, first, stopping, method=self.wanted)

    def _deep(self, reg: Function, start: Tensor | None, stopping: Stopping) -> Descent:
        if self.wanted == "bcd":
            return deep.descend_blocks(self.stages, self.y, reg, self.box, start, stopping, self.blocks)
        return forward.descend_forward(self.stages, self.y, reg, self.box, start, stopping, self.blocks)

    def output(self, x: Tensor) -> Tensor:
        """The forward pass."""
        return forward_states(self.stages, x)[-1]

    def fidelity(self, x: Tensor) -> Tensor:
        """B of the last activation at the forward pass."""
        last = self.stages[-1]
        below = forward_states(self.stages[:-1], x)[-1] if len(self.stages) > 1 else x
        return Fidelity(last.affine, last.activation, self.y).value(below)


@dataclasses.dataclass(frozen=True, eq=False)
class GraphInversion:
    """Any graph of affine maps and activations, with skips and maxima: B(y, N(x)) + αJ(x) by quasi-Newton."""

    before: Callable[[Tensor], Tensor]
    activation: Activation
    y: Tensor
    box: Box | None
    shape: tuple[int, ...]

    @property
    def options(self) -> tuple[str, ...]:
        """None."""
        return ()

    def method(self, reg: Function) -> str:
        """Always the same."""
        del reg
        return "forward+lbfgs"

    def solve(self, reg: Function, start: Tensor | None, stopping: Stopping) -> Descent:
        """From the start, or from 0 (in the box)."""
        zero = self.y.new_zeros(len(self.y), *self.shape)
        first = start if start is not None else zero if self.box is None else self.box.prox(zero)
        return forward.Forward(self.before, self.activation, self.y, reg, self.box).lower(first, stopping)

    def output(self, x: Tensor) -> Tensor:
        """The forward pass."""
        return self.activation(self.before(x))

    def fidelity(self, x: Tensor) -> Tensor:
        """B of the last activation at the forward pass."""
        return self.activation.penalty(self.y, self.before(x)).reshape(len(x), -1).sum(1)


@dataclasses.dataclass(frozen=True, eq=False)
class ResidualInversion:
    """u ↦ u + Wᵀσ(W u + b), several times: jointly convex in u₀ and all states."""

    blocks: Sequence[MonotoneResidual]
    y: Tensor
    box: Box | None
    shape: tuple[int, ...]
    weight: float

    @property
    def options(self) -> tuple[str, ...]:
        """The weight of the output."""
        return ("lam",)

    def method(self, reg: Function) -> str:
        """Always the same."""
        del reg
        return "convex"

    def solve(self, reg: Function, start: Tensor | None, stopping: Stopping) -> Descent:
        """FISTA on (u₀, z). Without a regularizer the energy, ≥ 0 and 0 at the preimage, is the gap."""
        first = single.joint_function(reg, self.box) if not isinstance(reg, Zero) else (self.box or reg)
        if first is None:
            raise InversionError(
                f"tl.invert: {type(reg).__name__} in a box has no prox here; use L1, L2 or no box"
            )
        energy, states = (
            ResidualEnergy(self.blocks, self.y, self.weight),
            StatePotential(self.blocks, first, self.shape),
        )
        u = samples(self.y if start is None else start)
        z, state = list[Tensor](), u
        for block in self.blocks:
            z.append(block.act(state @ block.weight.detach().mT + block.bias.detach()))
            state = state + z[-1] @ block.weight.detach()
        exact = isinstance(reg, Zero) and self.box is None

        def gap(x: Tensor, dual: Tensor | None) -> Certificate:
            del dual
            scale = self.y.square().sum(1) + x.square().sum(1)
            return Certificate(
                (energy.value(x) + states.fn(x)).clamp(min=0), 64 * torch.finfo(x.dtype).eps * scale
            )

        solution = fista(energy, states, torch.cat([u, *z], 1), gap=gap if exact else None, stopping=stopping)
        return dataclasses.replace(solution, x=solution.x[:, : u.shape[1]].reshape(len(u), *self.shape))

    def output(self, x: Tensor) -> Tensor:
        """The forward pass."""
        x = samples(x)
        for block in self.blocks:
            x = block(x)
        return x

    def fidelity(self, x: Tensor) -> Tensor:
        """λ/2 ‖N(x) − y‖²."""
        return self.weight * Linear().penalty(self.y, self.output(x)).sum(1)


@dataclasses.dataclass(frozen=True, eq=False)
class Rival:
    """½‖N(u) − y‖² through autograd."""

    network: Callable[[Tensor], Tensor]
    y: Tensor
    box: Box | None
    shape: tuple[int, ...]
    wanted: str
    lr: float | None

    @property
    def options(self) -> tuple[str, ...]:
        """The optimizer's rate."""
        return ("lr",)

    def method(self, reg: Function) -> str:
        """As asked for."""
        del reg
        return self.wanted

    def solve(self, reg: Function, start: Tensor | None, stopping: Stopping) -> Descent:
        """See ``rival``."""
        zero = self.y.new_zeros(len(self.y), *self.shape)
        first = start if start is not None else zero if self.box is None else self.box.prox(zero)
        with torch.enable_grad():
            return rival.descend_penalized(
                self.network, self.y, reg, self.box, first, stopping, self.wanted, self.lr
            )

    def output(self, x: Tensor) -> Tensor:
        """The forward pass."""
        return self.network(x)

    def fidelity(self, x: Tensor) -> Tensor:
        """½‖N(x) − y‖²."""
        return samples(self.network(x) - self.y).square().sum(1) / 2
