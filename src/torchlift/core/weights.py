"""Lifts that replace weights by functions of coordinates: w = φ(u)."""

import abc
import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from torchlift.core.errors import OrderError, SelectionError
from torchlift.core.loss import Batch
from torchlift.core.node import Node
from torchlift.core.problem import Problem
from torchlift.core.protocol import Fit, Lift
from torchlift.core.selection import near, select


class Reparametrised(Problem):
    """``base`` with each chosen weight computed by a node: F(u) = f(φ(u)) + penalty(u)."""

    def __init__(self, base: Problem, nodes: Mapping[str, Node], author: Lift) -> None:
        super().__init__()
        self.base, self.author = base, author
        self.loss, self.indexed = base.loss, base.indexed
        self.nodes = nn.ModuleDict({key(name): node for name, node in nodes.items()})
        self.slots = {key(name): slots for name, slots in tied(base, nodes).items()}
        for name in self.slots:
            fill(base, self.slots[name], None)  # a hole: any use of base past this wrapper fails loudly
        self.train(base.training)

    def inside(self, function: Callable[[Problem], Any]) -> Any:
        """Evaluate ``function(base)`` with the weights in place."""
        weights: dict[str, Tensor] = {}
        for name, node in self.nodes.items():
            weight = cast(Tensor, node())
            weights.update({f"base.{slot}": weight for slot in self.slots[name]})
        try:
            return functional_call(Inside(self.base, function), weights, (), tie_weights=False)
        finally:
            refresh_flat_weights(self.base)  # or copies of the problem would hold this forward's tensors

    def forward(self, batch: Batch, weight: float = 1.0) -> Tensor:
        """The base's objective and penalties at w = φ(u), and the nodes' own penalties."""
        return self.inside(lambda base: base(batch, weight)) + self.own_penalty()

    def objective(self, batch: Batch) -> Tensor:
        """The base's objective at w = φ(u)."""
        return self.inside(lambda base: base.objective(batch))

    def penalty(self) -> Tensor | float:
        """The base's penalties at w = φ(u), and the nodes' own."""
        return self.inside(lambda base: base.penalty()) + self.own_penalty()

    def own_penalty(self) -> Tensor | float:
        """What this lift alone adds."""
        return sum(cast(Node, node).penalty() for node in self.nodes.values())

    def predict(self, x: Any) -> Any:
        """The base's prediction at w = φ(u)."""
        return self.inside(lambda base: base.predict(x))

    def body(self) -> None:
        """None: layers cannot be replaced while their weights are lifted."""

    def prepare(self, batches: Iterable[Batch]) -> None:
        """Hand the data down."""
        self.inside(lambda base: base.prepare(batches))
        self.indexed = self.base.indexed

    def project(self) -> Problem:
        """A copy of the base with the nodes' hard weights in their places, tied ones tied again."""
        base = copy.deepcopy(self.base)
        for name, node in self.nodes.items():
            weight = cast(Tensor, cast(Node, node).project())
            fill(base, self.slots[name], nn.Parameter(weight.detach().clone()))
        refresh_flat_weights(base)
        return base


class WeightLift(Lift):
    """Chosen weights become functions of coordinates."""

    where: str
    """A glob on dotted parameter names, such as ``"*conv*.weight"``."""

    @abc.abstractmethod
    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """A node for each weight to lift; ``node()`` is the soft weight, ``node.project()`` the hard one."""

    def eligible(self, problem: Problem) -> dict[str, Tensor]:
        """The weights a glob may pick: trainable floating-point matrices, kernels and banks."""
        named = problem.named_parameters()
        return {n: p.detach() for n, p in named if p.ndim > 1 and p.requires_grad and p.is_floating_point()}

    def lift(self, problem: Problem) -> Problem:
        """A copy of the problem whose chosen weights are computed by nodes."""
        base = copy.deepcopy(problem)
        known = self.eligible(base)
        made = self.nodes({name: known[name] for name in select(known, self.where, repr(self))})
        if not made:
            raise SelectionError(f"{self!r} finds no weight to lift. {near('', list(known))}")
        return Reparametrised(base, made, self)

    def project(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """The problem underneath, with hard weights."""
        del fit
        if not (isinstance(problem, Reparametrised) and problem.author == self):
            raise OrderError(f"{self!r} was not the last lift of this problem: project in reverse order.")
        return problem.project()


class Inside(nn.Module):
    """``function(base)`` as a module, so that ``functional_call`` can swap weights under it."""

    def __init__(self, base: Problem, function: Callable[[Problem], Any]) -> None:
        super().__init__()
        self.base, self.function = base, function

    def forward(self) -> Any:
        """Evaluate."""
        refresh_flat_weights(self.base)
        return self.function(self.base)


def key(name: str) -> str:
    """A dotted name as a module's name: dots are reserved there."""
    return name.replace(".", "/")


def tied(module: nn.Module, names: Iterable[str]) -> dict[str, list[str]]:
    """All names of each of the named parameters, in one pass over the module."""
    known: dict[nn.Parameter, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        known.setdefault(parameter, []).append(name)
    return {name: known[module.get_parameter(name)] for name in names}


def fill(module: nn.Module, names: Iterable[str], weight: nn.Parameter | None) -> None:
    """Put one parameter (or a hole) under each of the names."""
    for name in names:
        owner, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(owner), leaf, weight)


def refresh_flat_weights(module: nn.Module) -> None:
    """Make torch's RNNs list their weights anew: they keep a private copy of the list."""
    if torch.compiler.is_compiling():
        return
    for part in module.modules():
        if isinstance(part, nn.RNNBase):
            part._init_flat_weights()  # pyright: ignore[reportPrivateUsage]  (the one private call of the core)
