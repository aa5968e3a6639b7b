"""The follower: sees a model run, operation by operation, and hands labels and grades on to the outputs."""

import contextlib
from collections.abc import Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from torchlift.channels.follow.constants import Constants
from torchlift.channels.follow.labels import Labels, varying
from torchlift.channels.follow.rules import RULES, Labeled, ModuleSizes, Norm, SliceNormed, pad, tensors_in

CONVOLUTION = torch.ops.aten.convolution.default


class Follower(TorchDispatchMode):
    """Labels and grades flow where values flow."""

    def __init__(self, model: nn.Module, labels: Labels, readers: Any, *, equal_groups: bool = False) -> None:
        super().__init__()
        self.labels, self.readers, self.equal_groups = labels, readers, equal_groups
        self.constants = Constants()
        self.constants.pure = lambda tensor: self.look(tensor).pure
        self.labeled: Any = WeakTensorKeyDictionary()
        """What is known of the tensors that are alive."""
        self.stack: list[str] = []
        self.silent = 0
        self.names: dict[int, str] = {}
        """Of parameters and buffers, by id."""
        self.norms: list[Norm] = []
        self.scaled: list[SliceNormed] = []
        self.shapes: list[ModuleSizes] = []
        self.spread: list[Tensor] = []
        self.modules: dict[str, nn.Module] = dict(model.named_modules())

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Spare torch the import of its compiler, which takes longer than following a model does."""
        return False

    @property
    def module(self) -> str:
        """The innermost module at work."""
        return self.stack[-1] if self.stack else ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, then follow it."""
        kwargs = kwargs or {}
        grades = self.readers.values and not self.silent
        if grades:
            self.constants.prepare(func, args)
        plain = func is not CONVOLUTION
        with contextlib.nullcontext() if plain else torch.backends.mkldnn.flags(enabled=True):
            out = func(*args, **kwargs)
        if not self.silent:
            self.follow(func, args, kwargs, out)
        if grades:
            out = self.constants.answer(func, args, out)
            self.constants.follow(func, args, kwargs, out)
        return out

    def follow(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        """Find the rule of an operation and apply it."""
        operands = list(tensors_in([*args, *kwargs.values()]))
        if not any(True for _ in tensors_in([out])):
            return
        if not operands or all(self.look(t).wild for t in operands):
            self.put_all(out, wild=True, pure=True)
            return
        rule = RULES.get(func.overloadpacket)
        if rule is None and torch.Tag.pointwise in func.tags:
            rule = RULES[torch.ops.aten.add]
        if rule is None:
            self.give_up(operands, f"{func.overloadpacket.__name__} is not an operation that can be followed")
            self.put_all(out)
        else:
            rule(self, func, args, kwargs, out)

    def look(self, tensor: Tensor) -> Labeled:
        """What is known of a tensor; of a stranger (an input), nothing."""
        return self.labeled.get(tensor) or Labeled(tensor.shape, [])

    def put(self, tensor: Tensor, cores: Sequence[Tensor], *, wild: bool = False, pure: bool = False) -> None:
        """Remember a tensor's labels."""
        self.labeled[tensor] = Labeled(tensor.shape, list(cores), wild, pure)
        self.spread += [core for core in cores if len(varying(core)) > 1]

    def put_all(self, out: Any, *, wild: bool = False, pure: bool = False) -> None:
        """Remember tensors without labels."""
        for tensor in tensors_in([out]):
            self.put(tensor, [], wild=wild, pure=pure)

    def give_up(self, operands: Sequence[Tensor], why: str) -> None:
        """Keep whatever these tensors carry."""
        for tensor in operands:
            for core in self.look(tensor).cores:
                self.labels.freeze(core, why)

    def unmixed(self, core: Tensor, mixed: Set[int], why: str) -> Tensor | None:
        """A core at an operation that mixes along some dimensions: what differs along others too goes as a
        whole; what differs along these alone stays. None: it stays."""
        own = varying(core)
        if not own & mixed:
            return core
        if own - mixed:
            return self.labels.along(core, own & mixed)
        self.labels.freeze(core, why)
        return None

    def merge(
        self, shape: Sequence[int], modules: Sequence[tuple[list[Tensor], Sequence[int], bool]]
    ) -> list[Tensor]:
        """The cores of what is computed entry by entry from parts, each (cores, shape, wild), broadcast."""
        n = len(shape)
        padded = [
            ([pad(core, n) for core in cores], (1,) * (n - len(own)) + tuple(own), wild)
            for cores, own, wild in modules
        ]
        blocked: set[int] = set()
        for cores, own, wild in padded:
            followed = set[int]().union(*(varying(core) for core in cores))
            if not wild:
                blocked |= {d for d in range(n) if own[d] > 1 and d not in followed}
        cores = [core for cores, _, _ in padded for core in cores]
        why = "meets channels that cannot be cut (the model's input, or a constant)"
        kept = [c for core in cores if (c := self.unmixed(core, blocked, why)) is not None]
        return self.joined(kept)

    def joined(self, cores: list[Tensor]) -> list[Tensor]:
        """Cores of one tensor with no dimension in two of them."""
        done: list[Tensor] = []
        for core in cores:
            for other in done:
                if varying(core) & varying(other):
                    done = [one for one in done if one is not other]
                    core = self.fused(core, other)
            if varying(core):
                done.append(core)
        return done

    def fused(self, a: Tensor, b: Tensor) -> Tensor:
        """Two cores that share a dimension as one; the outermost dimension decides where they differ."""
        if varying(a) != varying(b):
            slab = min(varying(a) | varying(b))
            a, b = (self.labels.along(core, varying(core) - {slab}) for core in (a, b))
            for core in (a, b):
                if not varying(core):
                    self.labels.freeze(core, "is shared by several heads or groups")
            if not varying(a) or not varying(b):
                return a if varying(a) else b
        self.labels.unite(a, b)
        return torch.where(a == 0, b, a)
