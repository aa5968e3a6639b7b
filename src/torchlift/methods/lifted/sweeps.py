"""Updates of one block at a time: all hidden states in turn, then the weights of every layer."""

import dataclasses
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from torchlift.convex.activations import Linear
from torchlift.convex.solvers.sketch import sketched_ridge
from torchlift.errors import TorchliftError
from torchlift.methods.lifted.layers import Layer
from torchlift.methods.lifted.lift import Mu
from torchlift.methods.lifted.network import Network, StatesByLayer
from torchlift.methods.lifted.penalties import Bregman, Classical, Penalty
from torchlift.methods.lifted.shard import Alone, Shard
from torchlift.methods.lifted.solvers import descent
from torchlift.methods.lifted.solvers.descent import Accelerated, DescentRule, Exact, Linearized
from torchlift.methods.lifted.solvers.glm import WeightBlock
from torchlift.methods.lifted.solvers.joint import joint_states
from torchlift.methods.lifted.solvers.regularizers import Regularizer, regularized_weights
from torchlift.methods.lifted.solvers.states import StateBlock
from torchlift.methods.lifted.solvers.xstep import nnls, quadratic_domain

Order = Literal["descending", "ascending", "red_black", "jacobi"]


def update_waves(order: Order, hidden: int) -> list[list[int]]:
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
class SweepMethod:
    """How states and weights are updated in turn; :class:`torchlift.lifted.BCD` describes the settings."""

    order: Order = "descending"
    update: str | DescentRule | None = None
    rho: float = 1e-3
    regularizer: Regularizer | None = None
    growth: float = 1.0
    every: int = 1
    tolerance: float = 0.0
    input_noise: float = 0.0
    learn_slopes: bool = False
    chunk: int | None = None
    penalty: str = "bregman"
    mu: Mu = 1.0
    states: Literal["layers", "joint"] = "layers"
    output: float | None = None
    state_l1: float = 0.0
    parallel: Literal["samples", "layers"] = "samples"
    sketch: int | None = None

    def __post_init__(self) -> None:
        update_waves(self.order, 1)
        if self.parallel not in ("samples", "layers"):
            raise TorchliftError(f"BCD: parallel is 'samples' or 'layers', got {self.parallel!r}.")
        without = {
            "states='joint'": self.states == "joint",
            "output": self.output is not None,
            "chunk": self.chunk is not None,
            "learn_slopes": self.learn_slopes,
        }
        if self.parallel == "layers" and any(without.values()):
            names = ", ".join(name for name, there in without.items() if there)
            raise TorchliftError(f"BCD: parallel='layers' goes without {names}.")
        if self.states not in ("layers", "joint"):
            raise TorchliftError(f"BCD: states is 'layers' or 'joint', got {self.states!r}.")
        if self.sketch is not None and (self.penalty != "classical" or self.regularizer is not None):
            raise TorchliftError("BCD: sketch is for penalty='classical' without a regularizer.")
        if self.states == "joint" and self.state_l1:
            raise TorchliftError("BCD: state_l1 goes with states='layers'.")
        if self.states == "joint" and self.penalty != "classical":
            raise TorchliftError("BCD: states='joint' needs penalty='classical', the jointly convex one.")
        if self.output is not None and not self.output > 0:
            raise TorchliftError(f"BCD: output is a positive weight, got {self.output}.")
        descent.descent_rule(self.rule)
        if self.chunk is not None and self.chunk < 1:
            raise TorchliftError(f"BCD: chunk is a number of samples, got {self.chunk}.")

    @property
    def rule(self) -> DescentRule:
        """How blocks are updated."""
        return descent.descent_rule(
            self.update or ("accelerated" if self.penalty == "quadratic" else "exact")
        )

    def sweep_states(
        self, network: Network, x: Tensor, y: Tensor, states: list[Tensor], shard: Shard | None = None
    ) -> None:
        """Update every hidden state in place of the list."""
        if self.states == "joint":
            states[:] = joint_states(network, x, y, states)
            return
        shard, rule = shard or Alone(), self.rule
        for wave in update_waves(self.order, network.hidden):
            new = {i: state_step(network, i, x, y, states, rule, shard) for i in wave}
            for i, state in new.items():
                states[i] = torch.lerp(states[i], state, 0.5) if self.order == "jacobi" else state

    def sweep_weights(
        self,
        network: Network,
        x: Tensor,
        y: Tensor,
        states: list[Tensor],
        shard: Shard | None = None,
        trained: Sequence[bool] | None = None,
    ) -> None:
        """Update the weights of every layer that is trained: they are independent given the states."""
        below, above, shard = [x, *states], [*states, y], shard or Alone()

        for i, layer in enumerate(network.layers):
            if trained is None or trained[i]:
                noise = self.input_noise if i == 0 else 0.0
                penalty, mu = network.penalties[i], network.mus[i]
                layer.theta = self.weight_step(layer, penalty, mu, below[i], above[i], shard, noise)

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
        penalty = penalty.in_v
        rows, target, rule = layer.rows(below), layer.rows_of(above), self.rule
        samples = float(shard.sum(rows.new_tensor(float(len(rows))))) if noise else 0.0
        rho = self.ridge(penalty, mu, samples, noise)
        if self.regularizer is not None:
            return regularized_weights(
                rows,
                target,
                penalty,
                mu,
                self.regularizer,
                layer.theta,
                bias=layer.bias,
                rule=rule,
                shard=shard,
            )
        least_squares = isinstance(penalty, Classical)
        if self.sketch is not None and least_squares and rows.shape[1] < self.sketch < len(rows):
            if shard.processes > 1 or not layer.bias:
                raise TorchliftError("BCD: sketch is for one process and layers with a bias.")
            return theta_of(*sketched_ridge(rows, target, mu / 2, rho, self.sketch))
        block = WeightBlock(rows, target, penalty, mu, rho, layer.bias, shard)
        if least_squares and isinstance(rule, Exact | Linearized | Accelerated):
            return block.step(layer.theta)  # the majorant is the problem itself: one ridge solve
        return rule(block.block(), layer.theta)

    def ridge(self, penalty: Penalty, mu: float, rows: float, noise: float) -> float:
        """The weight of ‖W‖²: ρ, and what noisy inputs add over so many rows."""
        return self.rho + mu * penalty.lipschitz_v * rows * noise**2 / 2

    def not_streamed(self, network: Network) -> str | None:
        """Why the weights cannot be found from streamed Gram matrices."""
        exact = isinstance(self.rule, Exact)
        majorised = [p for p in network.penalties if not isinstance(p, Classical) and not _square(p)]
        if exact and majorised:
            return "update='exact' with this penalty and loss: say update='linearized', or 'accelerated'"
        if self.regularizer is not None:
            return "a regularizer"
        if self.learn_slopes:
            return "learn_slopes"
        if any(not p.convex_v for p in network.penalties):
            return "the quadratic penalty, whose step needs a line search"
        return None


def theta_of(weight: Tensor, bias: Tensor) -> Tensor:
    """[W | b]."""
    return torch.cat([weight, bias[:, None]], 1)


def state_step(
    network: Network,
    index: int,
    x: Tensor,
    y: Tensor,
    states: StatesByLayer,
    rule: DescentRule,
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
    square = isinstance(above, Classical) or _square(above)
    here = network.penalties[index]
    plain = network.layers[index + 1].flat and len(network.layers[index + 1].before) == 0
    quadratic = isinstance(here, Classical | Bregman) and quadratic_domain(here.activation, v) is not None
    return square and plain and quadratic and v.ndim == 2


def _square(penalty: Penalty) -> bool:
    """½‖u − v‖²."""
    return isinstance(penalty, Bregman) and isinstance(penalty.activation, Linear)
