"""Three-splitting training: states u and pre-activations v are variables (Taylor et al. 2016).

½‖u_{L+1} − y‖² + Σ_l γ/2‖u_l − σ(v_l)‖² + β/2‖v_l − W_l u_{l−1} − b_l‖², ReLU inside, identity at the output.
Every block has a closed form; ``proximal`` terms α/2‖· − last‖² make it proximal block-coordinate descent.
"""

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from torchlift.convex.activations import Clip, Linear
from torchlift.convex.solvers.ridge import Ridge
from torchlift.lifted.layers import Layer
from torchlift.lifted.network import Network
from torchlift.lifted.solvers.splitting import activation_step, relu_preactivation


@dataclasses.dataclass(frozen=True)
class Splitting:
    """Descending sweeps over output, states, pre-activations and weights of a dense ReLU network.

    ``proximal`` ties states and outputs, sample by sample, ``weight_proximal`` the weights (None: the same);
    as the fit is a sum over samples, the second belongs in proportion to their number. ``multiplier`` adds
    Taylor's accumulated multiplier on the last layer (ADMM); without it every block lowers the objective.
    """

    gamma: float = 1.0
    beta: float = 1.0
    proximal: float = 1.0
    weight_proximal: float | None = None
    multiplier: bool = False

    def __call__(self, network: Network, x: Tensor, y: Tensor, epochs: int) -> Iterator[Tensor]:
        """One sweep per item: how far every hidden layer is from the network, then ½‖u_{L+1} − y‖²."""
        check(network)
        states = network.states(x)
        pre = [network.preactivation(i, x, states) for i in range(network.hidden)]
        out = network.output(states[-1] if states else x)
        dual = torch.zeros_like(out)
        for _ in range(epochs):
            out, dual = self._output(network, x, y, states, out, dual)
            for index in reversed(range(network.hidden)):
                self._hidden(network, index, x, states, pre, out)
            yield torch.stack([*self._gaps(network, x, states, pre), (out - y).square().sum() / 2])

    def _gaps(self, network: Network, x: Tensor, states: list[Tensor], pre: list[Tensor]) -> list[Tensor]:
        """½‖u − σ(v)‖² + ½‖v − Wu₋ − b‖² of every hidden layer."""
        maps = [network.preactivation(i, x, states) for i in range(network.hidden)]
        triples = zip(states, pre, maps, strict=True)
        return [((u - v.clamp(min=0)).square().sum() + (v - m).square().sum()) / 2 for u, v, m in triples]

    def _output(
        self, network: Network, x: Tensor, y: Tensor, states: list[Tensor], out: Tensor, dual: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The output state between labels and pre-activation, then the last weights."""
        layer, below = network.layers[-1], states[-1] if states else x
        m = layer.forward(below)
        total = 1 + self.beta + self.proximal
        out = (y + self.beta * m - dual + self.proximal * out) / total
        self._weights(layer, below, out + dual / self.beta)
        if self.multiplier:
            dual = dual + self.beta * (out - layer.forward(below))
        return out, dual

    def _hidden(
        self, network: Network, index: int, x: Tensor, states: list[Tensor], pre: list[Tensor], out: Tensor
    ) -> None:
        above = network.layers[index + 1]
        target = out if index + 1 == network.hidden else pre[index + 1]
        states[index] = activation_step(
            above.weight, above.theta[:, -1], target, pre[index].clamp(min=0), self.gamma, self.beta
        )
        below = states[index - 1] if index else x
        m = network.layers[index].forward(below)
        centre = (self.beta * m + self.proximal * pre[index]) / (self.beta + self.proximal)
        pre[index] = relu_preactivation(states[index], centre, self.gamma, self.beta + self.proximal)
        self._weights(network.layers[index], below, pre[index])

    def _weights(self, layer: Layer, below: Tensor, target: Tensor) -> None:
        """min β/2‖v − Wu − b‖² + α/2‖W − last‖²: a ridge problem in the change of W."""
        tie = self.proximal if self.weight_proximal is None else self.weight_proximal
        ridge = Ridge(layer.rows(below), max(tie, 1e-6) / self.beta)
        weight, bias = ridge.solve(target - layer.forward(below))
        layer.theta = layer.theta + torch.cat([weight, bias[:, None]], 1)


def check(network: Network) -> None:
    """Only dense ReLU networks with the squared loss have these closed forms."""
    relu = all(
        isinstance(p.activation, Clip) and p.activation == Clip(0.0, float("inf"))
        for p in network.penalties[:-1]
    )
    dense = all(layer.flat and layer.bias for layer in network.layers)
    if not (relu and dense and isinstance(network.penalties[-1].activation, Linear)):
        raise ValueError(
            "method 'splitting' needs Linear layers with biases, ReLU activations and loss='mse'"
        )
