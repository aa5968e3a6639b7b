"""Lifted places in a module tree, and the one schedule they share."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from torchlift.core.stored import Stored, hold


class WayBack(Protocol):
    """A lift, as far as a node has to know it: what brings a problem back to the smaller one."""

    def project(self, problem: Any, fit: Any = None) -> Any:
        """The smaller problem."""
        ...


class Declares:
    """What says which of its parameters a lift has added."""

    options: Mapping[str, Mapping[str, Any]] = {}
    """The coordinates a lift has added (logits, coefficients, steps) by attribute name, each a parameter or a
    module of them, with the optimizer options they ask for: any option of an optimizer's group, ``lr_factor``
    (scales the rate), ``optimizer`` (a factory of its own). All others stand for the user's weights."""

    def added(self) -> "Iterator[tuple[nn.Parameter, Coordinate]]":
        """The coordinates a lift has added here."""
        for attribute, options in self.options.items():
            for parameter in parameters_of(self, attribute):
                yield parameter, Coordinate(attribute.rpartition(".")[2], options)


class Node(Declares, nn.Module):
    """A lifted part. It knows its way down and answers for all inside it.

    A node around a module keeps it as ``inner``; attributes the node does not have are looked up there,
    because real models read ``conv.stride`` and the like from their children.
    """

    way_back: "WayBack | None" = None
    """Whose projection takes it away."""

    def penalty(self) -> Tensor | float:
        """What the lift adds to the objective; by default that of the nodes inside."""
        return sum(penalty(child) for child in self.children())

    def project(self) -> nn.Module | Tensor:
        """The plain module or weight this node stands for, for good."""
        raise NotImplementedError(f"{type(self).__name__} has no projection of its own")

    def stored(self) -> Stored:
        """What is known of the projected weight: step and levels of a node that quantizes, mask of one that
        prunes. By default nothing."""
        return Stored()

    def constrain(self) -> None:
        """Bring the coordinates back to where they may be, in place; called after every optimizer step."""

    def hold(self, mask: Tensor) -> None:
        """Told, when made for a pruned weight, which of its entries live; the rest is multiplied by zero."""

    def surrogate(self) -> Callable[[], Tensor] | None:
        """Where the declared gradient is not that of ``forward`` (straight-through, stochastic): the function
        of the coordinates, at the present draws, whose gradient it is. None: forward's own gradient."""
        return None

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            inner = self.__dict__.get("_modules", {}).get("inner")
            if inner is None or name == "inner":
                raise
            return getattr(inner, name)


def refer(module: nn.Module, name: str, other: nn.Module | None) -> None:
    """Let a module use another one that is registered elsewhere, so that a state dict holds it once."""
    vars(module)[name] = other


class Dial(nn.Module):
    """A scalar turned from start (t = 0) to end (t = 1).

    geometric:  start · (end / start)^t        linear:  start + (end − start) · t

    A buffer, not a float: it is saved, moved and copied with the model, and turning it does not make
    ``torch.compile`` compile again. Kept in double precision whatever the model's, so that a float64 model
    is annealed as exactly as it computes; as a scalar it takes on the precision of what it multiplies.
    """

    value: Tensor

    def __init__(self, start: float, end: float, scale: Literal["geometric", "linear"] = "geometric") -> None:
        super().__init__()
        self.start, self.end, self.scale = start, end, scale
        self.register_buffer("value", torch.tensor(float(start), dtype=torch.float64))

    @property
    def moves(self) -> bool:
        """Whether a problem with this dial is itself only at t = 1."""
        return self.start != self.end

    def forward(self) -> Tensor:
        """The present value."""
        return self.value

    def turn(self, t: float) -> None:
        """Set the value for progress t in [0, 1]."""
        if self.scale == "geometric":
            self.value.fill_(self.start * (self.end / self.start) ** t)
        else:
            self.value.fill_(self.start + (self.end - self.start) * t)

    def _apply(self, fn: Any, recurse: bool = True) -> "Dial":
        exact = self.value
        super()._apply(fn, recurse)
        if self.value.device.type != "mps":  # which has no float64
            self.value = exact.to(self.value.device)
        return self


class SteppedDial(Dial):
    """A dial that moves at so many ``instants`` of a fit, not at each step; the last is saved with it.

    A problem with one is itself only at t = 1.
    """

    instant: Tensor

    def __init__(self, start: float, instants: int, first: int = 0) -> None:
        super().__init__(start, start, "linear")
        self.instants = instants
        self.register_buffer("instant", torch.tensor(first))

    @property
    def moves(self) -> bool:
        """Always."""
        return True

    def turn(self, t: float) -> None:
        """Move, if it is time."""
        before, now = int(self.instant), math.floor(self.instants * t)
        if now != before:
            self.instant.fill_(now)
            self.move(t, before)

    def move(self, t: float, before: int) -> None:
        """What happens at an instant; ``before`` is the number of the last one."""
        raise NotImplementedError


class Frozen(nn.Module):
    """A module kept as it is: no gradients, evaluation mode, dials untouched (a teacher)."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "Frozen":
        """Stay in evaluation mode, whatever ``mode`` says."""
        super().train(mode)
        self.module.eval()
        return self


def dials(module: nn.Module) -> Iterator[Dial]:
    """The dials that annealing turns: all but those of frozen parts."""
    if isinstance(module, Dial):
        yield module
    elif not isinstance(module, Frozen):
        for child in module.children():
            yield from dials(child)


def anneal(module: nn.Module, t: float) -> None:
    """Turn every dial to progress t in [0, 1]."""
    for dial in dials(module):
        dial.turn(t)


def penalty(module: nn.Module) -> Tensor | float:
    """The sum of the penalties of all nodes in the tree, each once however often it is used."""
    outermost: dict[int, Node] = {}
    collect_outermost(module, outermost)
    return sum(node.penalty() for node in outermost.values())


def collect_outermost(module: nn.Module, outermost: dict[int, Node]) -> None:
    """The nodes that no other node contains, by identity."""
    if isinstance(module, Node):
        outermost[id(module)] = module
    else:
        for child in module.children():
            collect_outermost(child, outermost)


def nodes(module: nn.Module) -> Iterator[tuple[str, Node]]:
    """All nodes with their dotted names, outermost first."""
    return ((name, child) for name, child in module.named_modules() if isinstance(child, Node))


def constrained(module: nn.Module) -> list[Node]:
    """The nodes, but those of frozen parts, that have something to do after a step."""
    frozen = {id(child) for top in module.modules() if isinstance(top, Frozen) for child in top.modules()}
    able = (node for _, node in nodes(module) if type(node).constrain is not Node.constrain)
    return [node for node in able if id(node) not in frozen]


@torch.no_grad()
def constrain(module: nn.Module) -> None:
    """Bring weights back to their masks and grids, and coordinates to where they may be; call it after an
    optimizer's step."""
    hold(module)
    for node in constrained(module):
        node.constrain()


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """A parameter that a lift has added, which no option reaches that does not name it."""

    name: str
    options: Mapping[str, Any]


def lift_coordinates(module: nn.Module) -> dict[nn.Parameter, Coordinate]:
    """What lifts have added to the user's weights, by parameter."""
    declaring = (node for node in module.modules() if isinstance(node, Declares))
    return {parameter: coordinate for node in declaring for parameter, coordinate in node.added()}


def parameters_of(owner: object, attribute: str) -> Iterator[nn.Parameter]:
    """The parameter with a dotted name, or all of the module with it; none where the node has neither."""
    value: Any = owner
    for step in attribute.split("."):
        value = getattr(value, step, None)
    if isinstance(value, nn.Parameter):
        yield value
    elif isinstance(value, nn.Module):
        yield from value.parameters()


def original_parameters(module: nn.Module, prefix: str = "") -> Iterator[str]:
    """Names of the parameters of the user's model in a problem: not those a lift added, nor a teacher's."""
    node = isinstance(module, Node)
    if not node:
        yield from (name for name, _ in module.named_parameters(prefix, recurse=False))
    for name, child in module.named_children():
        if not isinstance(child, Frozen) and (not node or name == "inner"):
            yield from original_parameters(child, f"{prefix}.{name}" if prefix else name)
