"""Layers partitioned over processes: each has the states and weights of consecutive layers, and solves them.

A block touches its neighbors alone. So before a wave of states a process sends its lowest state down and its
highest up, and after the weights those of its lowest layer down: what is sent does not grow with the depth.
The forward pass goes through the processes in chunks of samples, all of them busy but for the first and last
chunks.
"""

import dataclasses
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from torchlift.methods.lifted.network import Network
from torchlift.methods.lifted.shard import Alone, Sharded

_CHUNKS = 4  # of the forward pass, per process


@dataclasses.dataclass(frozen=True)
class ProcessLayers:
    """The layers of one process; ``states`` hold its own and, after ``exchange``, those next to them."""

    network: Network
    shapes: Sequence[torch.Size]
    """Of a sample's states, layer by layer."""
    rank: int = 0
    world: int = 1

    def layers_of(self, rank: int) -> range:
        """Consecutive layers, as many for each process as can be."""
        count = len(self.network.layers)
        return range(rank * count // self.world, (rank + 1) * count // self.world)

    @property
    def own(self) -> range:
        """This process's layers."""
        return self.layers_of(self.rank)

    @property
    def hidden(self) -> list[int]:
        """Those that have states."""
        return [i for i in self.own if i < self.network.hidden]

    def forward(self, x: Tensor) -> dict[int, Tensor]:
        """Own states of the forward pass, chunk by chunk from the process below to the one above."""
        chunks: list[list[Tensor]] = []
        sent: list[dist.Work | None] = []
        for chunk in x.tensor_split(min(len(x), _CHUNKS * self.world) if self.world > 1 else 1):
            below = chunk
            if self.rank > 0:
                below = chunk.new_empty(len(chunk), *self.shapes[self.own[0] - 1])
                dist.recv(below, self.rank - 1)
            states: list[Tensor] = []
            for i in self.hidden:
                below = self.network.penalties[i].activation(self.network.layers[i].forward(below))
                states.append(below)
            chunks.append(states)
            if self.rank + 1 < self.world:
                sent.append(dist.isend(below.contiguous(), self.rank + 1))
        wait(sent)
        return {
            i: torch.cat(pieces) for i, pieces in zip(self.hidden, zip(*chunks, strict=True), strict=False)
        }

    def exchange(self, x: Tensor, states: dict[int, Tensor]) -> None:
        """The highest state of the process below, the lowest of the one above."""
        works: list[dist.Work | None] = []
        for lower in range(self.world - 1):
            highest, lowest = self.layers_of(lower)[-1], self.layers_of(lower + 1)[0]
            ways = [(lower, lower + 1, highest), (lower + 1, lower, lowest)]
            for source, target, i in ways[: 2 if lowest < self.network.hidden else 1]:
                if source == self.rank:
                    works.append(dist.isend(states[i].contiguous(), target))
                elif target == self.rank:
                    states[i] = x.new_empty(len(x), *self.shapes[i])
                    works.append(dist.irecv(states[i], source))
        wait(works)

    def send_weights_down(self) -> None:
        """Every process gets the weights of the layer above its own."""
        works: list[dist.Work | None] = []
        if self.rank > 0:
            works.append(dist.isend(self.network.layers[self.own[0]].theta.contiguous(), self.rank - 1))
        if self.rank + 1 < self.world:
            above = self.network.layers[self.own[-1] + 1]
            above.theta = torch.empty_like(above.theta)
            works.append(dist.irecv(above.theta, self.rank + 1))
        wait(works)

    def drop_weights(self) -> None:
        """Keep those of one's own layers and of the one above."""
        for i, layer in enumerate(self.network.layers):
            if i not in self.own and i != self.own[-1] + 1:
                layer.theta = layer.theta[:0].clone()

    def share_weights(self) -> None:
        """All processes get all weights."""
        for rank in range(self.world if self.world > 1 else 0):
            for layer in (self.network.layers[i] for i in self.layers_of(rank)):
                if rank != self.rank:
                    rows, columns = layer.module.weight.flatten(1).shape
                    layer.theta = layer.theta.new_empty(rows, columns + 1)
                layer.theta = layer.theta.contiguous()
                dist.broadcast(layer.theta, rank)

    def collect(self, own: list[Tensor]) -> list[Tensor]:
        """The states of all layers in the first process; the others' own."""
        if self.rank > 0:
            for state in own:
                dist.send(state.contiguous(), 0)
            return own
        states = list(own)
        for rank in range(1, self.world):
            for i in self.layers_of(rank):
                if i < self.network.hidden:
                    states.append(own[0].new_empty(len(own[0]), *self.shapes[i]))
                    dist.recv(states[-1], rank)
        return states

    def layer_energies(self, x: Tensor, states: dict[int, Tensor], y: Tensor) -> Tensor:
        """Σ over samples of every layer's penalty, the loss last."""
        network = self.network
        values = x.new_zeros(len(network.layers))
        for i in self.own:
            v = network.preactivation(i, x, states)
            values[i] = network.penalties[i].value(y if i == network.hidden else states[i], v).sum()
        return self.sum(values)

    def sum(self, local: Tensor) -> Tensor:
        """Over all processes."""
        return (Sharded() if self.world > 1 else Alone()).sum(local)


def wait(works: Sequence[dist.Work | None]) -> None:
    """Until all is sent and received."""
    for work in works:
        if work is not None:
            work.wait()
