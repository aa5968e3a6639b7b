"""Samples spread over processes: the sums that make every block solver distributed."""

import abc
import dataclasses

import torch.distributed as dist
from torch import Tensor


class Shard(abc.ABC):
    """How sums and maxima over samples are completed when this process holds only some of them."""

    @property
    @abc.abstractmethod
    def processes(self) -> int:
        """How many processes hold samples."""

    @abc.abstractmethod
    def sum(self, local: Tensor) -> Tensor:
        """The sum over all processes."""

    @abc.abstractmethod
    def max(self, local: Tensor) -> Tensor:
        """The maximum over all processes."""

    def first(self, local: Tensor) -> Tensor:
        """The tensor of the first process."""
        return local


@dataclasses.dataclass(frozen=True)
class Alone(Shard):
    """All samples are here."""

    @property
    def processes(self) -> int:
        """1."""
        return 1

    def sum(self, local: Tensor) -> Tensor:
        """The local sum itself."""
        return local

    def max(self, local: Tensor) -> Tensor:
        """The local maximum itself."""
        return local


@dataclasses.dataclass(frozen=True)
class Sharded(Shard):
    """Every process of a ``torch.distributed`` group holds its own rows."""

    group: dist.ProcessGroup | None = None

    @property
    def processes(self) -> int:
        """The size of the group."""
        return dist.get_world_size(self.group)

    def _reduce(self, local: Tensor, op: dist.ReduceOp.RedOpType) -> Tensor:
        total = local.detach().clone().contiguous()
        dist.all_reduce(total, op=op, group=self.group)
        return total

    def sum(self, local: Tensor) -> Tensor:
        """All-reduced sum."""
        return self._reduce(local, dist.ReduceOp.SUM)

    def max(self, local: Tensor) -> Tensor:
        """All-reduced maximum."""
        return self._reduce(local, dist.ReduceOp.MAX)

    def first(self, local: Tensor) -> Tensor:
        """Broadcast."""
        return _from_first(local, self.group)


@dataclasses.dataclass(frozen=True)
class Slice:
    """A process's rows of a batch that every process holds, and the way back to whole tensors."""

    rank: int = 0
    world: int = 1

    @classmethod
    def of(cls, samples: int, rank: int, world: int) -> "Slice":
        """Equal parts; a batch with fewer samples than processes is everyone's."""
        return cls(rank, world) if samples >= world > 1 else cls()

    @property
    def shard(self) -> Shard:
        """What completes sums over the parts."""
        return Sharded() if self.world > 1 else Alone()

    def take(self, whole: Tensor) -> Tensor:
        """This process's rows."""
        return whole if self.world == 1 else whole.tensor_split(self.world)[self.rank]

    def join(self, rows: Tensor, samples: int) -> Tensor:
        """All rows, from the parts of all processes."""
        if self.world == 1:
            return rows
        whole = rows.new_zeros(samples, *rows.shape[1:])
        self.take(whole).copy_(rows)
        return self.shard.sum(whole)


def _from_first(local: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    shared = local.detach().clone().contiguous()
    dist.broadcast(shared, group=group, group_src=0)
    return shared
