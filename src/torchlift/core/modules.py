"""Lifts that replace layers by nodes that know their way down."""

import abc
import copy
from collections.abc import Mapping
from typing import ClassVar

from torch import nn

from torchlift.core.node import Node, nodes
from torchlift.core.problem import Problem
from torchlift.core.protocol import Fit, Lift
from torchlift.core.selection import closest_names, select
from torchlift.core.stored import drop_stale
from torchlift.core.weights import computed
from torchlift.errors import OrderError, SelectionError


class ModuleLift(Lift):
    """Named modules of the model become nodes; projection asks each node for the module it stands for."""

    where: str
    """A glob on the model's dotted module names."""

    rewrites: ClassVar[bool] = False
    """Whether nodes change the weights of the modules they stand for: tied weights are then left alone."""

    @abc.abstractmethod
    def nodes(self, modules: Mapping[str, nn.Module]) -> Mapping[str, Node]:
        """A node for each module to lift, made around it; modules left out stay as they are."""

    def accepts_module(self, module: nn.Module) -> str | None:
        """Why a module cannot be lifted, or None. A glob passes over such modules if it finds others."""
        del module
        return None

    def lift(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """A copy of the problem with nodes in place of the chosen modules."""
        del fit
        problem = copy.deepcopy(problem)
        body = self.body(problem)
        if any(node.way_back == self for _, node in nodes(body)):
            raise OrderError(f"{self!r} has lifted this problem already: project it first.")
        names = module_aliases(body)
        replacements = self.nodes(self.chosen(body, names))
        if not replacements:
            raise SelectionError(f"{self!r} lifts none of the modules it matches. {closest_names('', names)}")
        for name, node in replacements.items():
            node.way_back = self
            node.train(body.training)
            for alias in names[name]:
                body.set_submodule(alias, node)
        return problem

    def chosen(self, body: nn.Module, names: Mapping[str, list[str]]) -> dict[str, nn.Module]:
        """The modules ``where`` picks that can be lifted; an error with the reasons if none can."""
        matched = {name: body.get_submodule(name) for name in select(names, self.where, repr(self))}
        tied = shares_weights(body) if self.rewrites else set[int]()
        reasons = {
            name: self.untouchable(module, tied) or self.accepts_module(module)
            for name, module in matched.items()
        }
        reasons |= {name: "has no entries" for name, one in matched.items() if is_empty(one)}
        liftable = {name: module for name, module in matched.items() if reasons[name] is None}
        if not liftable:
            why = dict.fromkeys(f"{type(matched[n]).__name__}: {reason}" for n, reason in reasons.items())
            raise SelectionError(f"{self!r} can lift none of the modules it matches ({'; '.join(why)}).")
        return liftable

    def untouchable(self, module: nn.Module, tied: set[int]) -> str | None:
        """Why a lift that rewrites weights must leave a module alone, or None."""
        if not self.rewrites:
            return None
        if computed(module):
            return f"its {computed(module)[0]} is computed from other parameters"
        if id(module) in tied:
            return "shares its weight with another module"
        return "has frozen parameters" if is_frozen(module) else None

    def project(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """A copy of the problem with this lift's nodes projected, innermost first."""
        del fit
        problem = copy.deepcopy(problem)
        body = self.body(problem)
        mine = [(name, node) for name, node in nodes(body) if node.way_back == self]
        if not mine:
            raise OrderError(f"{self!r} has no node in this problem: lift it first, and project only once.")
        names = module_aliases(body)
        for name, node in reversed(mine):
            plain = node.project()
            assert isinstance(plain, nn.Module)
            plain.train(node.training)
            for alias in names[name]:
                body.set_submodule(alias, plain)
        drop_stale(problem)
        return problem

    def body(self, problem: Problem) -> nn.Module:
        """The model, or an error: once weights are lifted, layers cannot be replaced."""
        body = problem.body()
        if body is None:
            raise OrderError(
                f"{self!r} replaces modules, but the weights are lifted already: "
                "chain module lifts before weight lifts, project weight lifts before module lifts."
            )
        return body


def module_aliases(body: nn.Module) -> dict[str, list[str]]:
    """All dotted names of each module, by the first of them: shared modules have several."""
    first: dict[int, str] = {}
    names: dict[str, list[str]] = {}
    for name, module in body.named_modules(remove_duplicate=False):
        if name:
            names.setdefault(first.setdefault(id(module), name), []).append(name)
    return names


def is_frozen(module: nn.Module) -> bool:
    """Whether a parameter of the module is not to be trained, and so must come back as it is."""
    return any(not parameter.requires_grad for parameter in module.parameters())


def is_empty(module: nn.Module) -> bool:
    """Whether a parameter of the module itself has no entries."""
    return any(not parameter.numel() for parameter in module.parameters(recurse=False))


def shares_weights(body: nn.Module) -> set[int]:
    """Identities of the modules one of whose own parameters another module has too: rewriting it in place
    would change the other, replacing it would untie them."""
    owners: dict[int, set[int]] = {}
    for module in body.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), set()).add(id(module))
    return {module for users in owners.values() if len(users) > 1 for module in users}
