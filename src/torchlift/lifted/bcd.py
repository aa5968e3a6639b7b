"""Block-coordinate descent: states layer by layer, then all weights, on all samples (Askari et al. 2018)."""

import dataclasses
from collections.abc import Iterator
from typing import Literal, get_args

import torch
from torch import Tensor

from torchlift.convex.activations import Linear
from torchlift.lifted.layers import Layer
from torchlift.lifted.network import Network
from torchlift.lifted.penalties import Bregman, Classical, Penalty
from torchlift.lifted.recompute import recomputed_sweep
from torchlift.lifted.shard import Alone, Shard
from torchlift.lifted.solvers import descent
from torchlift.lifted.solvers.descent import Exact, Rule
from torchlift.lifted.solvers.glm import WeightBlock
from torchlift.lifted.solvers.regularisers import Regulariser, regularised_weights
from torchlift.lifted.solvers.states import StateBlock
from torchlift.lifted.solvers.xstep import nnls, quadratic_domain

Order = Literal["descending", "ascending", "red_black", "jacobi"]


def waves(order: Order, hidden: int) -> list[list[int]]:
    """Which hidden layers are updated together, in turn: a wave sees only what earlier waves left."""
    if order not in get_args(Order):
        raise ValueError(f"order: {order!r} is none of {', '.join(get_args(Order))}")
    match order:
        case "descending":
            return [[i] for i in reversed(range(hidden))]
        case "ascending":
            return [[i] for i in range(hidden)]
        case "red_black":
            return [w for w in (list(range(hidden - 1, -1, -2)), list(range(hidden - 2, -1, -2))) if w]
        case "jacobi":
            return [list(range(hidden))] if hidden else []


@dataclasses.dataclass(frozen=True)
class BCD:
    """min over states, then over weights, again and again; all but ``jacobi`` never raise the objective.

    ``update`` is how far each block is taken: exact, linearised, accelerated, momentum, adaptive, or a rule.
    ``growth`` multiplies every μ after each ``every`` sweeps; ``tolerance`` stops on the relative change of
    the layers' penalties and the loss. ``rho``‖W‖² (plain sums) or any ``regulariser`` acts on the weights.

    Extensions: ``input_noise`` s makes the first layer robust to inputs that are off by noise of deviation s
    (for each sample E‖W₁·noise‖² = s²‖W₁‖² is added inside the penalty: exact for quadratics, else a bound);
    ``learn_slopes`` fits the slope of every leaky ReLU; ``chunk`` recomputes states chunk by chunk instead
    of storing them.
    """

    order: Order = "descending"
    update: str | Rule = "exact"
    rho: float = 1e-3
    regulariser: Regulariser | None = None
    growth: float = 1.0
    every: int = 1
    tolerance: float = 0.0
    input_noise: float = 0.0
    learn_slopes: bool = False
    chunk: int | None = None

    def __post_init__(self) -> None:
        waves(self.order, 1)
        descent.get(self.update)

    def sweep_states(
        self, network: Network, x: Tensor, y: Tensor, states: list[Tensor], shard: Shard | None = None
    ) -> None:
        """Update every hidden state in place of the list."""
        shard, rule = shard or Alone(), descent.get(self.update)
        for wave in waves(self.order, network.hidden):
            new = shard.each(
                {i: states[i] for i in wave}, lambda i: state_step(network, i, x, y, states, rule, shard)
            )
            for i, state in new.items():
                states[i] = torch.lerp(states[i], state, 0.5) if self.order == "jacobi" else state

    def sweep_weights(
        self, network: Network, x: Tensor, y: Tensor, states: list[Tensor], shard: Shard | None = None
    ) -> None:
        """Update every layer's weights: the layers are independent given the states."""
        below, above, shard = [x, *states], [*states, y], shard or Alone()

        def work(i: int) -> Tensor:
            noise = self.input_noise if i == 0 else 0.0
            layer, penalty, mu = network.layers[i], network.penalties[i], network.mus[i]
            return self.weight_step(layer, penalty, mu, below[i], above[i], shard, noise)

        found = shard.each({i: layer.theta for i, layer in enumerate(network.layers)}, work)
        for i, theta in found.items():
            network.layers[i].theta = theta

    def weight_step(
        self,
        layer: Layer,
        penalty: Penalty,
        mu: float,
        below: Tensor,
        above: Tensor,
        shard: Shard,
        noise: float = 0.0,
    ) -> Tensor:
        """argmin over θ of μ ΣP(u, v) + ρ‖W‖² (or R(W)), as far as ``update`` goes."""
        rows, target, rule = layer.rows(below), layer.rows_of(above), descent.get(self.update)
        samples = float(shard.sum(rows.new_tensor(float(len(rows))))) if noise else 0.0
        rho = self.rho + mu * penalty.lipschitz_v * samples * noise**2 / 2
        if self.regulariser is not None:
            return regularised_weights(
                rows,
                target,
                penalty,
                mu,
                self.regulariser,
                layer.theta,
                bias=layer.bias,
                rule=rule,
                shard=shard,
            )
        block = WeightBlock(rows, target, penalty, mu, rho, layer.bias, shard)
        if isinstance(penalty, Classical) and isinstance(rule, Exact):
            return block.step(layer.theta)  # the majorant is the problem itself: one ridge solve
        return rule(block.block(), layer.theta)

    def sweep(self, network: Network, x: Tensor, y: Tensor, states: list[Tensor], shard: Shard) -> Tensor:
        """All states, then all weights; returns the summed penalties."""
        if self.chunk is not None:
            return recomputed_sweep(
                network, x, y, chunk=self.chunk, rho=self.rho, states_of=self.sweep_states, shard=shard
            )
        self.sweep_states(network, x, y, states, shard)
        if self.learn_slopes:
            network.learn_slopes(x, states, shard)
        self.sweep_weights(network, x, y, states, shard)
        return shard.sum(network.parts(x, states, y))

    def __call__(
        self, network: Network, x: Tensor, y: Tensor, epochs: int, shard: Shard | None = None
    ) -> Iterator[Tensor]:
        """One sweep per item: the summed penalties of all layers, the loss last."""
        shard = shard or Alone()
        states = network.states(x) if self.chunk is None else []
        last: Tensor | None = None
        for sweep in range(epochs):
            parts = self.sweep(network, x, y, states, shard)
            yield parts
            if last is not None and bool(((parts - last).abs() <= self.tolerance * parts.abs().sum()).all()):
                break
            last = parts
            if (sweep + 1) % self.every == 0:
                network.mus[:-1] = [mu * self.growth for mu in network.mus[:-1]]


def state_step(
    network: Network,
    index: int,
    x: Tensor,
    y: Tensor,
    states: list[Tensor],
    rule: Rule,
    shard: Shard | None = None,
) -> Tensor:
    """One hidden layer's states with everything else fixed; exact quadratic cases go to the NNLS solvers."""
    v = network.preactivation(index, x, states)
    above = network.above(index, states, y)
    penalty, mu = network.penalties[index], network.mus[index]
    if isinstance(rule, Exact) and _is_quadratic(network, index, v):
        layer = network.layers[index + 1]
        return nnls(
            layer.weight,
            layer.theta[:, -1],
            above.state,
            v,
            above.mu,
            mu,
            activation=penalty.activation,
            start=states[index],
        )
    return rule(StateBlock(penalty, mu, v, above, shard or Alone()).block(), states[index])


def _is_quadratic(network: Network, index: int, v: Tensor) -> bool:
    """f(u) = ½‖u‖² on a box or simplex below, ½‖u₊ − v₊‖² above, and a plain matrix between them."""
    above = network.penalties[index + 1]
    square = isinstance(above, Classical) or (
        isinstance(above, Bregman) and isinstance(above.activation, Linear)
    )
    here = network.penalties[index]
    plain = network.layers[index + 1].flat and len(network.layers[index + 1].before) == 0
    known = isinstance(here, Classical | Bregman) and quadratic_domain(here.activation, v) is not None
    return square and plain and known and v.ndim == 2
