"""Layers partitioned over processes: each solves the blocks of consecutive layers, and keeps their states.

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
class Stage:
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
        return {i: torch.cat(parts) for i, parts in zip(self.hidden, zip(*chunks, strict=True), strict=False)}

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

    def share_weights(self, *, whole: bool) -> None:
        """The weights of the layer above one's own; or all, from the processes that have them."""
        for rank in range(self.world if self.world > 1 else 0):
            for i in self.layers_of(rank) if whole else self.layers_of(rank)[:1]:
                theta = self.network.layers[i].theta.contiguous()
                if whole:
                    dist.broadcast(theta, rank)
                elif rank > 0 and self.rank == rank:
                    dist.send(theta, rank - 1)
                elif rank > 0 and self.rank == rank - 1:
                    dist.recv(theta, rank)
                self.network.layers[i].theta = theta

    def parts(self, x: Tensor, states: dict[int, Tensor], y: Tensor) -> Tensor:
        """Σ over samples of every layer's penalty, the loss last."""
        network = self.network
        values = x.new_zeros(len(network.layers))
        for i in self.own:
            v = network.preactivation(i, x, states)
            values[i] = network.penalties[i].value(y if i == network.hidden else states[i], v).sum()
        return (Sharded() if self.world > 1 else Alone()).sum(values)


def wait(works: Sequence[dist.Work | None]) -> None:
    """Until all is sent and received."""
    for work in works:
        if work is not None:
            work.wait()
