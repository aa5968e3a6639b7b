"""loss(y, v_{L+1}) + Σ_l μ_l P_l(u_l, v_l): a model with its states as variables (Askari et al. 2018).

The loss is one more penalty: cross-entropy is the softmax's, half the squared error the identity's.
"""

import dataclasses
from collections.abc import Sequence

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
from torchlift.methods.lifted.penalties import Bregman, Penalty
from torchlift.methods.lifted.read import agree, read
from torchlift.methods.lifted.shard import Shard
from torchlift.methods.lifted.solvers.output import as_targets
from torchlift.methods.lifted.solvers.robust import leaky_slope, leaky_slopes
from torchlift.methods.lifted.solvers.states import Above

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
        cls, model: nn.Module, penalty: str, mu: float | Sequence[float], loss: str | Activation
    ) -> "Network":
        """Read a model: ``mu`` is one weight for all hidden layers, or one for each."""
        layers = read(model)
        hidden = len(layers) - 1
        mus = [float(mu)] * hidden if isinstance(mu, int | float) else [float(m) for m in mu]
        if len(mus) != hidden or min(mus, default=1.0) <= 0:
            raise TorchliftError(f"lifted: mu needs one positive number or {hidden} of them, got {mu!r}")
        last = loss_activation(loss)
        if last.vector and isinstance(layers[-1], Conv):
            last = Channelwise(last)
        inner = [penalties.get(penalty, layer.activation or Linear()) for layer in layers[:-1]]
        return cls(layers, [*inner, Bregman(last)], [*mus, 1.0], model)

    def check(self, x: Tensor) -> None:
        """Compare the forward pass with the model's own, once, before anything is trained."""
        model, self.unchecked = self.unchecked, None
        if model is not None:
            agree(model, lambda some: self.output((self.states(some) or [some])[-1]), x)

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

    def preactivation(self, index: int, x: Tensor, states: Sequence[Tensor]) -> Tensor:
        """v of layer ``index`` (0 is the first)."""
        return self.layers[index].forward(states[index - 1] if index else x)

    def above(self, index: int, states: Sequence[Tensor], y: Tensor) -> Above:
        """What layer ``index`` sees of the next one."""
        layer, like = self.layers[index + 1], states[index]
        target = y if index + 1 == self.hidden else states[index + 1]
        penalty, mu, norm = self.penalties[index + 1], self.mus[index + 1], layer.norm_of(like)

        def seen(like: Tensor, target: Tensor) -> Above:
            """With maxima where these samples have them."""
            rows = (lambda some: seen(like[some], target[some])) if layer.pooled else None
            return Above(penalty, mu, target, *layer.frozen(like), norm, rows)

        return seen(like, target)

    def parts(self, x: Tensor, states: Sequence[Tensor], y: Tensor) -> Tensor:
        """Σ over these samples of every layer's unweighted penalty, the loss last."""
        targets = [*states, y]
        values = [
            penalty.value(target, self.preactivation(i, x, states)).sum()
            for i, (penalty, target) in enumerate(zip(self.penalties, targets, strict=True))
        ]
        return torch.stack(values)

    def learn_slopes(self, x: Tensor, states: Sequence[Tensor], shard: Shard) -> None:
        """The best slope of every leaky ReLU for these states, in closed form."""
        leaky = [n for n in self.layers[:-1] if isinstance(n.activation, LeakyReLU | PReLU)]
        if len({id(layer.source) for layer in leaky}) < len(leaky):
            raise TorchliftError("lifted: one activation module serves two layers, so its slope has no block")
        for i, layer in enumerate(self.layers[:-1]):
            if layer not in leaky:
                continue
            v = self.preactivation(i, x, states)
            if isinstance(layer.activation, PReLU):
                layer.activation = PReLU(leaky_slopes(states[i], v, layer.activation.slopes, shard=shard))
            else:
                layer.activation = LeakyReLU(leaky_slope(states[i], v, shard=shard))
            self.penalties[i] = type(self.penalties[i])(layer.activation)

    def write_back(self) -> None:
        """Put the weights into the user's modules."""
        for layer in self.layers:
            layer.write_back()
