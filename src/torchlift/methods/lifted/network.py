"""loss(y, v_{L+1}) + Σ_l μ_l P_l(u_l, v_l): a model with its states as variables (Askari et al. 2018).

The loss is one more penalty: cross-entropy is the softmax's, half the squared error the identity's.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from torchlift.convex.activations import (
    Activation,
    Channelwise,
    LeakyReLU,
    Linear,
    PReLU,
    Sigmoid,
    Softmax,
)
from torchlift.errors import TorchliftError
from torchlift.methods.lifted import penalties
from torchlift.methods.lifted.layers import Conv, Layer
from torchlift.methods.lifted.penalties import Bregman, Penalty, Sparse
from torchlift.methods.lifted.read import check_reading, read
from torchlift.methods.lifted.shard import Shard
from torchlift.methods.lifted.solvers.output import as_targets
from torchlift.methods.lifted.solvers.robust import golden_section, leaky_slope, leaky_slopes
from torchlift.methods.lifted.solvers.states import Above

StatesByLayer = Sequence[Tensor] | Mapping[int, Tensor]
"""By the layer they belong to."""

_LOSSES: dict[str, Activation] = {"cross_entropy": Softmax(), "mse": Linear(), "bce": Sigmoid()}


def loss_activation(loss: str | Activation) -> Activation:
    """The activation whose Bregman penalty is the loss."""
    if isinstance(loss, Activation):
        return loss
    if loss not in _LOSSES:
        raise TorchliftError(f"lifted: no loss {loss!r}; known: {', '.join(_LOSSES)}")
    return _LOSSES[loss]


@dataclasses.dataclass
class Network:
    """Layers 1..L+1, their penalties and weights; the last penalty is the loss, its weight 1."""

    layers: list[Layer]
    penalties: list[Penalty]
    mus: list[float]
    unchecked: nn.Module | None = None
    """The model these layers were read from, until both were compared on data."""

    @classmethod
    def of(
        cls,
        model: nn.Module,
        penalty: str,
        mu: float | Sequence[float],
        loss: str | Activation,
        state_l1: float = 0.0,
        layers: list[Layer] | None = None,
    ) -> "Network":
        """Read a model: ``mu`` is one weight for all hidden layers, or one for each.

        ``state_l1`` weighs the ℓ₁ norm of every hidden state; its part in the energies is state_l1/μ.
        """
        layers = layers or read(model)
        hidden = len(layers) - 1
        mus = [float(mu)] * hidden if isinstance(mu, int | float) else [float(m) for m in mu]
        if len(mus) != hidden or min(mus, default=1.0) <= 0:
            raise TorchliftError(f"lifted: mu needs one positive number or {hidden} of them, got {mu!r}")
        last = loss_activation(loss)
        if last.vector and isinstance(layers[-1], Conv):
            last = Channelwise(last)
        inner = [penalties.penalty_of(penalty, layer.activation or Linear()) for layer in layers[:-1]]
        if state_l1:
            inner = [Sparse.of(p, state_l1 / m) for p, m in zip(inner, mus, strict=True)]
        return cls(layers, [*inner, Bregman(last)], [*mus, 1.0], model)

    def check(self, x: Tensor) -> None:
        """Compare the forward pass with the model's own, once, before anything is trained."""
        model, self.unchecked = self.unchecked, None
        if model is not None:
            check_reading(model, lambda some: self.output((self.states(some) or [some])[-1]), x)

    @property
    def hidden(self) -> int:
        """How many states a sample has."""
        return len(self.layers) - 1

    def targets(self, y: Tensor, x: Tensor) -> Tensor:
        """Labels as states of the output layer; the first call compares the network with its model."""
        self.check(x)
        like = self.output((self.states(x[:1]) or [x[:1]])[-1])
        return as_targets(y, like.expand(len(y), *like.shape[1:]), self.penalties[-1].activation)

    def output(self, below: Tensor) -> Tensor:
        """v_{L+1}."""
        return self.layers[-1].forward(below)

    def states(self, x: Tensor) -> list[Tensor]:
        """The forward pass: every hidden penalty is zero (or least) there."""
        states: list[Tensor] = []
        for layer, penalty in zip(self.layers[:-1], self.penalties[:-1], strict=True):
            x = penalty.activation(layer.forward(x))
            states.append(x)
        return states

    def preactivation(self, index: int, x: Tensor, states: StatesByLayer) -> Tensor:
        """v of layer ``index`` (0 is the first)."""
        return self.layers[index].forward(states[index - 1] if index else x)

    def above(self, index: int, states: StatesByLayer, y: Tensor) -> Above:
        """What layer ``index`` sees of the next one."""
        layer, like = self.layers[index + 1], states[index]
        target = y if index + 1 == self.hidden else states[index + 1]
        penalty, mu, norm = self.penalties[index + 1], self.mus[index + 1], layer.norm_of(like)

        def seen(like: Tensor, target: Tensor) -> Above:
            """With maxima where these samples have them."""
            rows = (lambda some: seen(like[some], target[some])) if layer.pooled else None
            return Above(penalty, mu, target, *layer.frozen(like), norm, rows)

        return seen(like, target)

    def layer_energies(self, x: Tensor, states: Sequence[Tensor], y: Tensor) -> Tensor:
        """Σ over these samples of every layer's unweighted penalty, the loss last."""
        targets = [*states, y]
        values = [
            penalty.value(target, self.preactivation(i, x, states)).sum()
            for i, (penalty, target) in enumerate(zip(self.penalties, targets, strict=True))
        ]
        return torch.stack(values)

    def learn_slopes(self, x: Tensor, y: Tensor, states: list[Tensor], shard: Shard) -> None:
        """The slope of every leaky ReLU, with the states it bends; no step raises the energy.

        First along a ↦ (a, u₋·a/a₀), on which states at the forward pass stay there: a search in one variable
        for each slope. Where that finds nothing better, the best slope for these states in closed form.
        """
        leaky = [n for n in self.layers[:-1] if isinstance(n.activation, LeakyReLU | PReLU)]
        if len({id(layer.source) for layer in leaky}) < len(leaky):
            raise TorchliftError("lifted: one activation module serves two layers, so its slope has no block")
        for i, layer in enumerate(self.layers[:-1]):
            v = self.preactivation(i, x, states)
            match layer.activation:
                case LeakyReLU(slope=slope):
                    searched = self._searched(i, y, v, states, states[i].new_tensor([slope]), shard)
                    self._set(i, searched or LeakyReLU(leaky_slope(states[i], v, shard=shard)))
                case PReLU(slopes=slopes):
                    searched = self._searched(i, y, v, states, slopes, shard)
                    self._set(i, searched or PReLU(leaky_slopes(states[i], v, slopes, shard=shard)))
                case _:
                    pass

    def _set(self, index: int, activation: Activation) -> None:
        self.layers[index].activation = activation
        self.penalties[index] = type(self.penalties[index])(activation)

    def _searched(
        self, index: int, y: Tensor, v: Tensor, states: list[Tensor], slopes: Tensor, shard: Shard
    ) -> Activation | None:
        """Slopes by golden section, one after another, their states moved along; None if none got better."""
        above, kind, first = self.above(index, states, y), type(self.penalties[index]), states[index]
        plain = isinstance(self.layers[index].activation, LeakyReLU)

        def activation(a: Tensor) -> Activation:
            return LeakyReLU(float(a)) if plain else PReLU(a)

        def moved(a: Tensor) -> Tensor:
            factor = (a / slopes).reshape(-1, *[1] * (first.ndim - 2))
            return torch.where(first < 0, factor * first, first)

        def value(a: Tensor) -> float:
            u = moved(a)
            here = self.mus[index] * kind(activation(a)).value(u, v).sum()
            return float(
                shard.sum(here + above.mu * above.penalty.value(above.state, above.forward(u)).sum())
            )

        best = slopes.clone()
        for channel in range(len(slopes)):

            def one(a: float, best: Tensor = best, channel: int = channel) -> Tensor:
                changed = best.clone()
                changed[channel] = a
                return changed

            best = one(golden_section(lambda a, one=one: value(one(a)), 1e-3, 1.0))
        if value(best) >= value(slopes) * (1 - 1e-9):
            return None
        states[index] = moved(best)
        return activation(best)

    def write_back(self) -> None:
        """Put the weights into the user's modules."""
        for layer in self.layers:
            layer.write_back()
