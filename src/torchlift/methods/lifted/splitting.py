"""Three-splitting training: states u and pre-activations v are variables (Taylor et al. 2016).

½‖u_{L+1} − y‖² + Σ_l γ/2‖u_l − σ(v_l)‖² + β/2‖v_l − W_l u_{l−1} − b_l‖², ReLU inside, identity at the output.
Every block has a closed form; ``proximal`` terms α/2‖· − last‖² make it proximal block-coordinate descent.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchlift.convex.activations import Activation, Clip, Linear
from torchlift.convex.solvers.ridge import Ridge
from torchlift.core import Batch, Task
from torchlift.errors import TorchliftError
from torchlift.methods.lifted.bcd_problems import sample_indices
from torchlift.methods.lifted.blocks import BlockTask
from torchlift.methods.lifted.lift import StateLift
from torchlift.methods.lifted.network import Network
from torchlift.methods.lifted.shard import Shard, Slice
from torchlift.methods.lifted.solvers.splitting import activation_step, relu_preactivation
from torchlift.train.stepping import StepContext


@dataclasses.dataclass(frozen=True)
class Splitting(StateLift):
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

    def problem(self, task: Task, loss: Activation, shard: Shard | None = None) -> "SplittingTask":
        """The task, lifted."""
        return SplittingTask(task, loss, self, shard)


@dataclasses.dataclass
class Variables:
    """u, v of every hidden layer, the output state and its multiplier; samples are rows."""

    states: list[Tensor]
    pre: list[Tensor]
    out: Tensor
    dual: Tensor

    @classmethod
    def start(cls, network: Network, x: Tensor) -> "Variables":
        """Of the forward pass."""
        states = network.states(x)
        pre = [network.preactivation(i, x, states) for i in range(network.hidden)]
        out = network.output(states[-1] if states else x)
        return cls(states, pre, out, torch.zeros_like(out))

    def tensors(self) -> list[Tensor]:
        """All of them."""
        return [*self.states, *self.pre, self.out, self.dual]

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> "Variables":
        """The inverse of :meth:`tensors`."""
        hidden = (len(tensors) - 2) // 2
        return cls(list(tensors[:hidden]), list(tensors[hidden:-2]), tensors[-2], tensors[-1])


class SplittingTask(BlockTask):
    """A sweep per epoch, all samples in one batch."""

    def __init__(self, task: Task, loss: Activation, method: Splitting, shard: Shard | None = None) -> None:
        super().__init__(task, loss, "bregman", 1.0, shard)
        check_relu_network(self.network)
        self.method = method
        self.kept: list[Tensor] = []
        self.tie = 0.0
        """β/2‖u_{L+1} − v_{L+1}‖² per sample."""

    def memory(self) -> dict[str, Any]:
        """All variables."""
        return {"kept": self.kept, "tie": self.tie}

    def regularization(self) -> float:
        """The output's own tie."""
        return self.tie

    @torch.no_grad()
    def prepare(self, batches: Iterable[Batch]) -> None:
        """Variables of the forward pass."""
        variables = [Variables.start(self.network, self.checked(batch)).tensors() for batch in batches]
        self.kept = [torch.cat(pieces) for pieces in zip(*variables, strict=True)]
        self.indexed = True

    @torch.no_grad()
    def start(self, context: StepContext) -> None:
        """All processes start from the first one's weights, and variables."""
        super().start(context)
        if not self.indexed:
            raise TorchliftError("method 'splitting' keeps all states: give it tensors in memory.")
        shard = Slice(context.rank, context.world).shard
        self.kept = [shard.first(tensor) for tensor in self.kept]

    def step(self, batch: Batch, context: StepContext) -> None:
        """Output, states, pre-activations and weights, from the last layer to the first."""
        if context.batches > 1:
            raise TorchliftError("method 'splitting' needs all samples in one batch: raise batch_size.")
        x, y = self.pair(batch)
        y = self.network.targets(y, x)
        mine = Slice.of(len(x), context.rank, context.world)
        if self.indexed:
            now = Variables.of([mine.take(kept.index_select(0, sample_indices(batch))) for kept in self.kept])
        else:
            now = Variables.start(self.network, mine.take(x))
        my_x, my_y, shard = mine.take(x), mine.take(y), self.shard or mine.shard
        self.sweep(my_x, my_y, now, shard)
        for kept, new in zip(self.kept, now.tensors(), strict=False):
            kept.index_copy_(0, sample_indices(batch), mine.join(new, len(x)))
        count = len(x) if self.shard is None else int(self.shard.sum(torch.tensor(len(x))))
        self.note(shard.sum(self.energies(my_x, my_y, now)), count)
        gap = now.out - self.network.output(now.states[-1] if now.states else my_x)
        self.tie = self.method.beta / 2 * float(shard.sum(gap.square().sum())) / count

    def sweep(self, x: Tensor, y: Tensor, now: Variables, shard: Shard) -> None:
        """One descending sweep over all blocks."""
        self._output(x, y, now, shard)
        for index in reversed(range(self.network.hidden)):
            self._hidden(index, x, now, shard)

    def energies(self, x: Tensor, y: Tensor, now: Variables) -> Tensor:
        """γ/2‖u − σ(v)‖² + β/2‖v − Wu₋ − b‖² of every hidden layer, then ½‖u_{L+1} − y‖²."""
        gamma, beta = self.method.gamma, self.method.beta
        maps = [self.network.preactivation(i, x, now.states) for i in range(self.network.hidden)]
        triples = zip(now.states, now.pre, maps, strict=True)
        energies = [
            (gamma * (u - v.clamp(min=0)).square().sum() + beta * (v - m).square().sum()) / 2
            for u, v, m in triples
        ]
        return torch.stack([*energies, (now.out - y).square().sum() / 2])

    def _output(self, x: Tensor, y: Tensor, now: Variables, shard: Shard) -> None:
        """The output state between labels and pre-activation, then the last weights."""
        method, below = self.method, now.states[-1] if now.states else x
        m = self.network.layers[-1].forward(below)
        total = 1 + method.beta + method.proximal
        now.out = (y + method.beta * m - now.dual + method.proximal * now.out) / total
        self._weights(-1, below, now.out + now.dual / method.beta, shard)
        if method.multiplier:
            now.dual = now.dual + method.beta * (now.out - self.network.layers[-1].forward(below))

    def _hidden(self, index: int, x: Tensor, now: Variables, shard: Shard) -> None:
        method, above = self.method, self.network.layers[index + 1]
        target = now.out if index + 1 == self.network.hidden else now.pre[index + 1]
        now.states[index] = activation_step(
            above.weight, above.theta[:, -1], target, now.pre[index].clamp(min=0), method.gamma, method.beta
        )
        below = now.states[index - 1] if index else x
        m = self.network.layers[index].forward(below)
        tied = method.beta + method.proximal
        center = (method.beta * m + method.proximal * now.pre[index]) / tied
        now.pre[index] = relu_preactivation(now.states[index], center, method.gamma, tied)
        self._weights(index, below, now.pre[index], shard)

    def _weights(self, index: int, below: Tensor, target: Tensor, shard: Shard) -> None:
        """min β/2‖v − Wu − b‖² + α/2‖W − last‖²: a ridge problem in the change of W."""
        if not self.trained[index]:
            return
        layer, method = self.network.layers[index], self.method
        tie = method.proximal if method.weight_proximal is None else method.weight_proximal
        ridge = Ridge(layer.rows(below), max(tie, 1e-6) / method.beta, shard=shard)
        weight, bias = ridge.solve(target - layer.forward(below))
        layer.theta = layer.theta + torch.cat([weight, bias[:, None]], 1)


def check_relu_network(network: Network) -> None:
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
