"""Lifted problems that step by solving blocks: what they share, and what a checkpoint holds of them."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torchlift.convex.activations import Activation, LeakyReLU, PReLU
from torchlift.core import Batch, Task
from torchlift.errors import TorchliftError
from torchlift.methods.lifted.layers import Layer
from torchlift.methods.lifted.network import Network
from torchlift.methods.lifted.problem import LiftedProblem, energy_row, mean_loss
from torchlift.methods.lifted.shard import Shard, Slice
from torchlift.train.stepping import StepContext, Stepper
from torchlift.tree import each


class BlockTask(LiftedProblem, Stepper):
    """A chain of layers whose θ = [W | b] the blocks set; after every step the module holds them.

    θ, μ, slopes, energies and what :meth:`memory` names are in the state dict: a fit goes on bit for bit.
    ``shard`` is for callers whose processes hold samples of their own; without it processes share every
    batch.
    """

    solves = True

    def __init__(
        self,
        task: Task,
        loss: Activation,
        penalty: str,
        mu: float | Sequence[float],
        shard: Shard | None = None,
        state_l1: float = 0.0,
        layers: list[Layer] | None = None,
    ) -> None:
        super().__init__(task, loss)
        if state_l1 < 0:
            raise TorchliftError(f"lifted: state_l1 is a weight of at least 0, got {state_l1}.")
        self.network = Network.of(task.model, penalty, mu, loss, state_l1, layers)
        self.trained = [trains(layer) for layer in self.network.layers]
        self.shard = shard
        self.sums = torch.zeros(len(self.network.layers) + 1, dtype=torch.float64)
        """Every layer's penalty over this epoch's samples, the loss, and their number."""

    @abc.abstractmethod
    def step(self, batch: Batch, context: StepContext) -> None:
        """New θ, or what leads to them; adds to ``sums``."""

    @abc.abstractmethod
    def memory(self) -> dict[str, Any]:
        """What else a continued fit needs, by attribute."""

    def regularization(self) -> float:
        """What is added to the mean of the energies."""
        return 0.0

    @torch.no_grad()
    def start(self, context: StepContext) -> None:
        """All processes start from the first one's weights."""
        shard = self.shard or Slice(context.rank, context.world).shard
        for layer in self.network.layers:
            layer.theta = shard.first(layer.theta)
        self.write_back()

    @torch.no_grad()
    def advance(self, batch: Batch, context: StepContext) -> Tensor:
        """A step, its weights in the module; the mean objective of the epoch so far."""
        if context.batch == 0:
            self.sums = torch.zeros_like(self.sums)
        self.step(batch, context)
        for layer in self.network.layers:
            layer.theta = layer.theta.contiguous()  # as a checkpoint holds it: strides are part of the bits
        self.write_back()
        return torch.tensor(self.row()["objective"])

    def objective(self, batch: Batch) -> Tensor:
        """The mean loss of the forward pass, where every penalty is least."""
        x, y = self.pair(batch)
        return mean_loss(self.output, y, self.task.model(x))

    def write_back(self) -> None:
        """Put what was trained into the module."""
        for layer, trained in zip(self.network.layers, self.trained, strict=True):
            if trained or layer.norm is None:  # slopes may move where weights do not
                layer.write_back()

    def checked(self, batch: Batch) -> Tensor:
        """The inputs of a batch, on which the network was once compared with its model."""
        x = self.pair(batch)[0]
        self.network.check(x)
        return x

    def note(self, terms: Tensor, samples: int) -> None:
        """Add the sums of all penalties over so many samples."""
        self.sums = self.sums + torch.cat([terms, terms.new_tensor([float(samples)])]).to(self.sums)

    def row(self) -> Mapping[str, float]:
        """The energies of this epoch."""
        values = (self.sums[:-1] / self.sums[-1]).tolist()
        names = [layer.name for layer in self.network.layers[:-1]]
        return energy_row(names, values[:-1], values[-1], self.network.mus[:-1], self.regularization())

    def get_extra_state(self) -> dict[str, Any]:
        """θ, μ, slopes, energies, memory."""
        acts = [layer.activation for layer in self.network.layers[:-1]]
        return {
            "theta": [layer.theta for layer in self.network.layers],
            "mus": list(self.network.mus),
            "slopes": [slope_of(act) for act in acts],
            "sums": self.sums,
            **self.memory(),
        }

    @torch.no_grad()
    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`get_extra_state`."""
        state = each(torch.clone, state)  # where torch puts tensors: their alignment is part of the bits
        self.network.mus, self.sums = list(state["mus"]), state["sums"]
        for i, (theta, slope) in enumerate(zip(state["theta"], (*state["slopes"], None), strict=True)):
            self.network.layers[i].theta = theta.to(self.network.layers[i].theta)
            if slope is not None:
                activation = PReLU(slope) if isinstance(slope, Tensor) else LeakyReLU(slope)
                self.network.layers[i].activation = activation
                self.network.penalties[i] = type(self.network.penalties[i])(activation)
        for name in self.memory():
            value = state[name]
            setattr(self, name, list(value) if isinstance(value, tuple) else value)
        self.write_back()


def trains(layer: Layer) -> bool:
    """Whether the layer is to be trained; raises for one that is half frozen."""
    flags = {p.requires_grad for p in (layer.module.weight, layer.module.bias) if p is not None}
    if len(flags) > 1:
        raise TorchliftError(
            f"lifted: layer {layer.name!r} has its weight or its bias frozen: freeze both, or none."
        )
    return flags.pop()


def slope_of(activation: Activation | None) -> float | Tensor | None:
    """What of an activation may be learned."""
    match activation:
        case LeakyReLU():
            return activation.slope
        case PReLU():
            return activation.slopes
        case _:
            return None


def trained_sum(problem: BlockTask, weight: float) -> float:
    """weight · Σ‖W‖² over the layers that are trained."""
    pairs = zip(problem.network.layers, problem.trained, strict=True)
    return weight * sum(float(layer.weight.square().sum()) for layer, trained in pairs if trained)
