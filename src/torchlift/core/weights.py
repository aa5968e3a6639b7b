"""Lifts that replace weights by functions of coordinates: w = φ(u)."""

import abc
import contextlib
import copy
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from torchlift.core.node import Coordinate, Node, lift_coordinates
from torchlift.core.problem import Problem
from torchlift.core.protocol import Fit, Lift
from torchlift.core.selection import Name, closest_names, matches, named, select
from torchlift.core.stored import (
    forget,
    grid_holds,
    mask_holds,
    masks_of,
    owner_of,
    record_at,
    record_of,
    store,
)
from torchlift.errors import OrderError, SelectionError
from torchlift.loss import Batch


class Reparametrized(Problem):
    """``base`` with each chosen weight computed by a node: F(u) = f(m ⊙ φ(u)) + penalty(u).

    The mask m is the weight's record (:mod:`torchlift.core.stored`), and all ones elsewhere: a pruned weight
    stays pruned in any coordinates.
    """

    def __init__(self, base: Problem, nodes: Mapping[str, Node], way_back: Lift) -> None:
        super().__init__()
        self.base, self.way_back = base, way_back
        self.loss, self.indexed = base.loss, base.indexed
        self.nodes = nn.ModuleDict({module_key(name): node for name, node in nodes.items()})
        self.zeros = nn.Module()
        for name, mask in masks_of(base).items():
            if name in nodes:
                nodes[name].hold(mask)
                self.zeros.register_buffer(module_key(name), mask)
        added = lift_coordinates(base)
        slots = {name: base.get_parameter(name) for name in nodes}
        self.relifted = {module_key(name): added[p] for name, p in slots.items() if p in added}
        self.slots = {module_key(name): slots for name, slots in aliases_by_name(base, nodes).items()}
        for slots in self.slots.values():
            fill_names(base, slots, None)  # a hole: any use of base past this wrapper fails loudly
        self.train(base.training)

    def inside(self, function: Callable[[Problem], Any]) -> Any:
        """Evaluate ``function(base)`` with the weights in place."""
        masks = dict(self.zeros.named_buffers())
        swaps: list[tuple[dict[str, Any], str, Any]] = []
        for name, node in self.nodes.items():
            weight = cast(Tensor, node())
            weight = weight * masks[name] if name in masks else weight
            swaps += [(*slot_of(self.base, slot), weight) for slot in self.slots[name]]
        before = [parameters[leaf] for parameters, leaf, _ in swaps]
        try:
            for parameters, leaf, weight in swaps:
                parameters[leaf] = weight
            refresh_flat_weights(self.base)
            return function(self.base)
        finally:
            for (parameters, leaf, _), hole in zip(swaps, before, strict=True):
                parameters[leaf] = hole
            refresh_flat_weights(self.base)  # or copies of the problem would hold this forward's tensors

    def forward(self, batch: Batch, weight: float = 1.0) -> Tensor:
        """The base's objective and penalties at w = φ(u), and the nodes' own penalties."""
        return self.inside(lambda base: base(batch, weight)) + self.own_penalty()

    def objective(self, batch: Batch) -> Tensor:
        """The base's objective at w = φ(u)."""
        return self.inside(lambda base: base.objective(batch))

    def task_loss(self, batch: Batch) -> Tensor:
        """The user's loss at w = φ(u)."""
        return self.inside(lambda base: base.task_loss(batch))

    def penalty(self) -> Tensor | float:
        """The base's penalties at w = φ(u), and the nodes' own."""
        return self.inside(lambda base: base.penalty()) + self.own_penalty()

    def own_penalty(self) -> Tensor | float:
        """What this lift alone adds; a node that serves several weights counts once."""
        unique = {id(node): cast(Node, node) for node in self.nodes.values()}
        return sum(node.penalty() for node in unique.values())

    def predict(self, x: Any) -> Any:
        """The base's prediction at w = φ(u)."""
        return self.inside(lambda base: base.predict(x))

    def body(self) -> None:
        """None: layers cannot be replaced while their weights are lifted."""

    def label(self, name: str) -> str:
        """The user's name of a weight; of a coordinate, that of its weight with the coordinate's own."""
        head, _, rest = name.partition(".")
        if head == "base":
            return self.base.label(rest)
        slot, _, coordinate = rest.partition(".")
        if head != "nodes":
            return name
        weight = self.base.label(self.slots[slot][0])
        added = {attribute.rpartition(".")[2] for attribute in cast(Node, self.nodes[slot]).options}
        return f"{weight}.{coordinate}" if added & set(coordinate.split(".")) else weight

    def added(self) -> Iterator[tuple[nn.Parameter, Coordinate]]:
        """What was a coordinate of another lift before it was lifted again still is one."""
        for slot, coordinate in self.relifted.items():
            yield from ((parameter, coordinate) for parameter in self.nodes[slot].parameters())

    def prepare(self, batches: Iterable[Batch]) -> None:
        """Hand the data down."""
        self.inside(lambda base: base.prepare(batches))
        self.indexed = self.base.indexed

    def project(self, prunes: bool = False) -> Problem:
        """A copy of the base with the nodes' hard weights and their records in their places, tied ones tied
        again."""
        base = copy.deepcopy(self.base)
        masks = dict(self.zeros.named_buffers())
        for name, node in self.nodes.items():
            weight = cast(Tensor, cast(Node, node).project()).detach()
            weight = torch.where(masks[name], weight, 0.0) if name in masks else weight.clone()
            fill_names(base, self.slots[name], nn.Parameter(weight))
            record(base, self.slots[name][0], cast(Node, node), prunes)
        refresh_flat_weights(base)
        return base


class WeightLift(Lift):
    """Chosen weights become functions of coordinates."""

    where: str
    """A glob on dotted parameter names, such as ``"*conv*.weight"``."""

    prunes: ClassVar[bool] = False
    """Whether the projection makes zeros: they then stay in every later fit."""

    @abc.abstractmethod
    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """A node for each weight to lift; ``node()`` is the soft weight, ``node.project()`` the hard one."""

    def nodes_in(self, problem: Problem, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """The same, for a lift that reads more of the problem than its weights, such as their records."""
        del problem
        return self.nodes(weights)

    def eligible(self, problem: Problem) -> dict[str, Tensor]:
        """The weights a glob may pick: trainable floating-point matrices, kernels and banks."""
        return {n: p.detach() for n, p in liftable(problem).items() if p.ndim > 1}

    def lift(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """A copy of the problem whose chosen weights are computed by nodes."""
        del fit
        if problem.solves:
            raise OrderError(
                f"{self!r} cannot lift weights that {type(problem).__name__} solves for in blocks."
            )
        base = copy.deepcopy(problem)
        if self.prunes:
            check_reach(base, self.where, getattr(self, "skip", None), type(self).__name__)
        candidates = self.eligible(base)
        coordinates = self.nodes_in(
            base, {name: candidates[name] for name in select(candidates, self.where, repr(self))}
        )
        if not coordinates:
            raise SelectionError(f"{self!r} finds no weight to lift. {closest_names('', candidates)}")
        for node in coordinates.values():
            node.way_back = self
        return Reparametrized(base, coordinates, self)

    def project(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """The problem underneath, with hard weights."""
        del fit
        return self.own(problem).project(self.prunes)

    def own(self, problem: Problem) -> Reparametrized:
        """The problem as this lift made it, or an error: lifts are projected in reverse order."""
        if not (isinstance(problem, Reparametrized) and problem.way_back == self):
            raise OrderError(f"{self!r} was not the last lift of this problem: project in reverse order.")
        return problem


def record(base: nn.Module, name: str, node: Node, prunes: bool) -> None:
    """The record of a projected weight: what its node says, and what was known before where that still holds.

    Known before are the weight's own step and mask, and those of the coordinate ``weight`` that another lift
    projected. A fit is expected to leave a grid: a step that does not hold any more is dropped, silently.
    ``prunes``: without a word of the node, zeros are the mask.
    """
    weight, projection = base.get_parameter(name), node.stored()
    earlier = [record_of(base, name), record_at(node, "weight")]
    steps = [step for step, _ in earlier if step is not None and grid_holds(weight, step)]
    kept = [kept for _, kept in earlier if kept is not None and mask_holds(weight, kept)]
    forget(base, name)
    if projection.step is not None:
        store(base, name, step=projection.step, levels=projection.levels)
    elif steps:
        store(base, name, step=steps[-1])
    if projection.kept is not None or prunes:
        kept.append(weight != 0 if projection.kept is None else projection.kept)
    if kept:
        store(base, name, kept=torch.stack([mask.expand_as(weight) for mask in kept]).all(0))


def liftable(problem: Problem) -> dict[str, nn.Parameter]:
    """Trainable floating-point parameters with entries, by name; less what is ``unliftable``."""
    unliftable = {name: getattr(owner_of(problem, name)[0], "unliftable", ()) for name in named(problem)}
    free = {name: p for name, p in named(problem).items() if name.rpartition(".")[2] not in unliftable[name]}
    return {name: p for name, p in free.items() if p.requires_grad and p.is_floating_point() and p.numel()}


def computed(module: nn.Module) -> list[str]:
    """Names of a module's tensors that are computed in every call: weight norm, parametrizations."""
    parametrized = getattr(module, "parametrizations", None)
    names = list(parametrized) if isinstance(parametrized, nn.ModuleDict) else []
    attributes = [name for name, value in vars(module).items() if isinstance(value, Tensor)]
    own = [name for name, _ in module.named_parameters(recurse=False)]
    return names + [name for name in attributes if any(other.startswith(f"{name}_") for other in own)]


def check_reach(problem: Problem, where: str, skip: str | None, who: str) -> None:
    """An error that names the weights a glob means and no lift can reach: complex or computed ones."""
    reasons = {name: "is complex" for name, p in named(problem).items() if p.is_complex()}
    for path, module in problem.named_modules():
        names = [f"{path}.{leaf}" for leaf in computed(module)]
        reasons |= {Name(name, problem.label(name)): "is computed from other parameters" for name in names}
    for name, reason in reasons.items():
        if matches(name, where) and not (skip and matches(name, skip)):
            raise SelectionError(
                f"{who} cannot reach {name.label}, which {reason}: exclude it by where= or skip=."
            )


@contextlib.contextmanager
def weights_in_place() -> Generator[None]:
    """One line for models that compute again in the backward pass, when lifted weights are gone."""
    try:
        yield
    except TypeError as error:
        if "NoneType" not in str(error):
            raise
        raise SelectionError(
            "the model computes again in its backward pass (torch.utils.checkpoint), where lifted weights "
            "are not in place: switch checkpointing off."
        ) from error


def module_key(name: str) -> str:
    """A dotted name as a module's name: dots are reserved there."""
    return name.replace(".", "/")


def aliases_by_name(module: nn.Module, names: Iterable[str]) -> dict[str, list[str]]:
    """All names of each of the parameters: tied ones have several."""
    by_identity: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        by_identity.setdefault(id(parameter), []).append(name)
    return {name: by_identity[id(module.get_parameter(name))] for name in names}


def slot_of(module: nn.Module, name: str) -> tuple[dict[str, Any], str]:
    """Where a module keeps a parameter, which takes computed tensors there, and its name in that place."""
    *path, leaf = name.split(".")
    for child in path:
        module = vars(module)["_modules"][child]
    return vars(module)["_parameters"], leaf


def fill_names(module: nn.Module, names: Iterable[str], weight: nn.Parameter | None) -> None:
    """Put one parameter (or a hole) under each of the names."""
    for name in names:
        owner, leaf = owner_of(module, name)
        setattr(owner, leaf, weight)


def refresh_flat_weights(module: nn.Module) -> None:
    """Make torch's RNNs list their weights again: they keep a private copy of the list."""
    if torch.compiler.is_compiling():
        return
    for child in module.modules():
        if isinstance(child, nn.RNNBase):
            child._init_flat_weights()  # pyright: ignore[reportPrivateUsage]  (the one private call of the core)
