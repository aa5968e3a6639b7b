"""Several layers: min over u₀, z of Σ μ_l B_l(z_l, A_l z_{l−1} + b_l) + αJ(u₀), z_L = y (spec/lifted §5.3).

Convex in every block, not in all of them: block-coordinate descent from layer-wise convex starts.
"""

import dataclasses
import math
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from torchlift.convex.activations import Activation
from torchlift.convex.descent import Descent, Stopping, fista
from torchlift.convex.functions import TV, Box, Function, denoise, reweighted, samples
from torchlift.inversion.fidelity import Fidelity
from torchlift.inversion.reading import AffineStage, forward_states
from torchlift.inversion.single import Warm, solve

_START_STEPS = 20
_START_WEIGHT = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class LayerState(Function):
    """μ B(z, v) as a function of z, v fixed: its prox is that of the potential, moved by μv."""

    activation: Activation
    v: Tensor
    mu: float = 1.0

    def fn(self, x: Tensor) -> Tensor:
        """μ B(z, v)."""
        return self.mu * self.activation.penalty(x, self.v).reshape(len(x), -1).sum(1)

    def prox(self, x: Tensor, gamma: float | Tensor = 1.0) -> Tensor:
        """P_γμ(x + γμv)."""
        return self.activation.prox(x + gamma * self.mu * self.v, gamma * self.mu)


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A sweep: ``inner`` accelerated steps per state from the last layer down, ``first`` steps on u₀.

    α starts ``decades`` powers of ten above its value.
    """

    mu: float = 1.0
    first: int = 5
    decades: int = 2
    share: float = 0.1
    """The share of the sweeps, or of the seconds, that every larger α gets."""


def block_energy(
    stages: Sequence[AffineStage], mu: float, reg: Function, box: Box | None, u: Tensor, z: Sequence[Tensor]
) -> Tensor:
    """Σ μ B_l + αJ(u₀), one number per sample."""
    total = reg.fn(u) + (0.0 if box is None else box.fn(u))
    for stage, below, state in zip(stages, [u, *z[:-1]], z, strict=True):
        total = total + mu * stage.activation.penalty(state, stage.affine(below)).reshape(len(u), -1).sum(1)
    return total


def layerwise(stages: Sequence[AffineStage], y: Tensor) -> list[Tensor]:
    """z_L = y, and every state below by a convex one-layer inversion, its own potential as regularizer."""
    states = [y]
    for stage, below in zip(reversed(stages[1:]), reversed(stages[:-1]), strict=True):
        fidelity = Fidelity(stage.affine, stage.activation, states[0])
        v = y.new_zeros(len(y), *stage.affine.shape)
        prior = LayerState(below.activation, v, _START_WEIGHT * max(fidelity.lipschitz, 1e-30))
        start = below.activation(v)
        states.insert(
            0, fista(fidelity, prior, start, stopping=Stopping(max_iter=_START_STEPS, every=_START_STEPS)).x
        )
    return states


def best_start(
    stages: Sequence[AffineStage],
    y: Tensor,
    reg: Function,
    box: Box | None,
    init: Tensor | None,
    blocks: Blocks,
) -> tuple[Tensor, list[Tensor]]:
    """The better of two, sample by sample: layer-wise inversions, and the forward pass of what they give."""
    z = layerwise(stages, y)
    u = y.new_zeros(len(y), *stages[0].affine.shape) if init is None else init
    if init is None:
        fidelity = Fidelity(stages[0].affine, stages[0].activation, z[0], blocks.mu)
        method = "pdhg" if isinstance(reg, TV) else "auto"
        stopping = Stopping(max_iter=_START_STEPS, every=_START_STEPS)
        u = solve(fidelity, reg, box, u, stopping, method=method, certify=False).x
    forward = [*forward_states(stages[:-1], u), y]
    better = block_energy(stages, blocks.mu, reg, box, u, forward) < block_energy(
        stages, blocks.mu, reg, box, u, z
    )
    choose = [
        torch.where(better.reshape(-1, *[1] * (a.ndim - 1)), a, b) for a, b in zip(forward, z, strict=True)
    ]
    return u, choose


class Sweeps:
    """u₀, the states and the dual variable of J, lowered block by block with inertia (Pock & Sabach 2016)."""

    def __init__(
        self, stages: Sequence[AffineStage], box: Box | None, blocks: Blocks, u: Tensor, z: list[Tensor]
    ) -> None:
        self.stages, self.box, self.blocks, self.u, self.z = stages, box, blocks, u, z
        self.before = [u, *z]
        self.weight = 1.0
        self.dual: Tensor | None = None

    def __call__(self, reg: Function) -> None:
        """z_{L−1}, …, z₁, then u₀: a proximal step each, from a point ahead, unless the momentum turned."""
        following = (1 + math.sqrt(1 + 4 * self.weight**2)) / 2
        beta = (self.weight - 1) / following
        now = [self.u, *self.z]
        turned = 0.0
        for index in reversed(range(len(self.z) - 1)):
            old = self.z[index]
            point = old + beta * (old - self.before[index + 1])
            self.z[index] = self._state(index, point)
            turned += float(((point - self.z[index]) * (self.z[index] - old)).sum())
        point = self.u + beta * (self.u - self.before[0])
        old, self.u = self.u, self._input(reg, point)
        turned += float(((point - self.u) * (self.u - old)).sum())
        self.before = now
        self.weight = 1.0 if turned > 0 else following

    def _state(self, index: int, point: Tensor) -> Tensor:
        """Prox of μB_l(·, v_l) after a gradient step on μB_{l+1}."""
        mu, above, here = self.blocks.mu, self.stages[index + 1], self.stages[index]
        fidelity = Fidelity(above.affine, above.activation, self.z[index + 1], mu)
        step = 1 / max(fidelity.lipschitz, 1e-30)
        v = here.affine(self.z[index - 1] if index else self.u)
        return LayerState(here.activation, v, mu).prox(point - step * fidelity.gradient(point), step)

    def _input(self, reg: Function, point: Tensor) -> Tensor:
        """A few steps on u₀, given z₁."""
        stage, count = self.stages[0], self.blocks.first
        fidelity = Fidelity(stage.affine, stage.activation, self.z[0], self.blocks.mu)
        if not isinstance(reg, TV):
            return solve(
                fidelity, reg, self.box, point, Stopping(max_iter=count, every=count), certify=False
            ).x
        warm = Warm(reg, self.box, point, self.dual, 0.0)
        step = 1 / max(fidelity.lipschitz, 1e-30)
        operator, norm = warm.operator, warm.norm
        x, self.dual = denoise(
            operator,
            norm,
            point - step * fidelity.gradient(point),
            warm.q,
            step,
            samples(point).sum(1) * 0,
            box=self.box,
            cap=count,
        )
        return x


def descend_blocks(
    stages: Sequence[AffineStage],
    y: Tensor,
    reg: Function,
    box: Box | None,
    init: Tensor | None,
    stopping: Stopping,
    blocks: Blocks,
) -> Descent:
    """Block-coordinate descent, α falling by tens; stops on the relative change of u₀ and z per sweep."""
    begun = time.perf_counter()
    alpha = float(getattr(reg, "alpha", 1.0))
    u, z = best_start(stages, y, reweighted(reg, alpha * 10**blocks.decades), box, init, blocks)
    sweeps = Sweeps(stages, box, blocks, u, z)
    rows: list[tuple[int, float, float | None]] = []
    done, converged = 0, False
    for decade in range(blocks.decades, -1, -1):
        weighted = reweighted(reg, alpha * 10**decade)
        portion = 1.0 if decade == 0 else blocks.share * (blocks.decades - decade + 1)
        while done < portion * stopping.max_iter and not _late(begun, stopping, portion):
            last = [sweeps.u, *sweeps.z[:-1]]
            sweeps(weighted)
            done += 1
            change = _largest_change(last, [sweeps.u, *sweeps.z[:-1]])
            if done % stopping.every == 0:
                value = float(block_energy(stages, blocks.mu, reg, box, sweeps.u, sweeps.z).sum())
                rows.append((done, value, None))
                if stopping.report is not None:
                    stopping.report(done, value, None)
            if change <= stopping.tol:
                converged = decade == 0
                break
    value = block_energy(stages, blocks.mu, reg, box, sweeps.u, sweeps.z)
    return Descent(sweeps.u, value, done, converged, None, sweeps.dual, tuple(rows))


def _late(begun: float, stopping: Stopping, portion: float) -> bool:
    return stopping.seconds is not None and time.perf_counter() - begun >= portion * stopping.seconds


def _largest_change(old: Sequence[Tensor], new: Sequence[Tensor]) -> float:
    """The largest relative change of a sample over all its blocks."""
    pairs = list(zip(old, new, strict=True))
    moved = torch.stack([samples(a - b).square().sum(1) for a, b in pairs]).sum(0)
    size = torch.stack([samples(b).square().sum(1) for _, b in pairs]).sum(0)
    return float((moved / size.clamp(min=1e-24)).max().sqrt())
