"""Lifts that replace layers by nodes that know their way down."""

import abc
import copy
from collections.abc import Mapping

from torch import nn

from torchlift.core.errors import OrderError, SelectionError
from torchlift.core.node import Node, nodes
from torchlift.core.problem import Problem
from torchlift.core.protocol import Fit, Lift
from torchlift.core.selection import near, select


class ModuleLift(Lift):
    """Named modules of the model become nodes; projection asks each node for the module it stands for."""

    where: str
    """A glob on the model's dotted module names."""

    @abc.abstractmethod
    def nodes(self, modules: Mapping[str, nn.Module]) -> Mapping[str, Node]:
        """A node for each module to lift, made around it; modules left out stay as they are."""

    def lift(self, problem: Problem) -> Problem:
        """A copy of the problem with nodes in place of the chosen modules."""
        problem = copy.deepcopy(problem)
        body = self.body(problem)
        names = aliases(body)
        chosen = select(names, self.where, repr(self))
        made = self.nodes({name: body.get_submodule(name) for name in chosen})
        if not made:
            kinds = sorted({type(body.get_submodule(name)).__name__ for name in chosen})
            raise SelectionError(
                f"{self!r} lifts none of the modules it found ({', '.join(kinds)}). {near('', list(names))}"
            )
        for name, node in made.items():
            node.author = self
            node.train(body.training)
            for alias in names[name]:
                body.set_submodule(alias, node)
        return problem

    def project(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """A copy of the problem with this lift's nodes projected, innermost first."""
        del fit
        problem = copy.deepcopy(problem)
        body = self.body(problem)
        mine = [(name, node) for name, node in nodes(body) if node.author == self]
        if not mine:
            raise OrderError(f"{self!r} has no node in this problem: lift it first, and project only once.")
        for name, node in reversed(mine):
            plain = node.project()
            assert isinstance(plain, nn.Module)
            plain.train(node.training)
            for alias in aliases(body)[name]:
                body.set_submodule(alias, plain)
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


def aliases(body: nn.Module) -> dict[str, list[str]]:
    """All dotted names of each module, by the first of them: shared modules have several."""
    first: dict[int, str] = {}
    names: dict[str, list[str]] = {}
    for name, module in body.named_modules(remove_duplicate=False):
        if name:
            names.setdefault(first.setdefault(id(module), name), []).append(name)
    return names
