"""Samples spread over processes: the two reductions that make every block solver distributed."""

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
