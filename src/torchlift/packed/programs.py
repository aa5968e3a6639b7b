"""A model as a list of tensor operations: runs without the classes it was written in.

Values are numbered: the inputs, the weights, then one per step (operation, args, kwargs). No operation's
shapes depend on values, so a walk on tensors without memory (torch's meta device) finds every shape that an
input leads to. It is made when a file is loaded, for the shapes of the example, and again for every new
shape, before anything is computed: arguments are checked, and what the results would take is held against a
ceiling.
"""

from typing import Any

import torch
from torch import Tensor, nn

from torchlift.errors import TorchliftError
from torchlift.packed.budget import PackedError, product
from torchlift.packed.operations import operation
from torchlift.packed.walking import Step, filled, references, walk

CEILING, GROWTH = 2**30, 4096
STEPS = 1_000_000
KNOWN = 256


class Program(nn.Module):
    """Only operations of :mod:`torchlift.packed.operations`, on arguments that make sense, stand in a
    step."""

    names: list[str]
    weights: list[str]
    steps: list[Step]
    results: Any
    inputs: list[tuple[list[int], torch.dtype]] | None
    """Shapes and types of the example, where it was all tensors."""
    limit: int | None
    """The most bytes its results may take at once; None: as much as inputs and weights make likely."""

    STORED = frozenset({"training", "names", "weights", "steps", "results", "inputs"})
    """The attributes that a file may hold: the others are the reader's own."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the steps; values are let go after their last use."""
        given = self.arranged(args, kwargs)
        self.admit(given)
        values: list[Any] = [*given, *(getattr(self, name) for name in self.weights)]
        place = next((value.device for value in values if isinstance(value, Tensor)), torch.device("cpu"))
        for (name, arguments_, keywords), done in zip(self.steps, self.endings(), strict=True):
            keywords = {**keywords, "device": place} if keywords.get("device") is not None else keywords
            values.append(operation(name)(*filled(arguments_, values), **filled(keywords, values)))
            for number in done:
                values[number] = None
        return filled(self.results, values)

    def arranged(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The inputs in the order in which the program numbers them."""
        rest = self.names[len(args) :]
        if len(args) > len(self.names) or set(kwargs) != set(rest):
            raise TorchliftError(
                f"this program takes {', '.join(self.names)}; got {len(args)} and {list(kwargs)}."
            )
        return [*args, *(kwargs[name] for name in rest)]

    def admit(self, given: list[Any]) -> None:
        """Walk the steps without memory, once for every kind of input."""
        known: set[Any] = self.__dict__.setdefault("admitted", set())
        key = tuple((tuple(x.shape), x.dtype) if isinstance(x, Tensor) else repr(x) for x in given)
        if key not in known:
            weights = [getattr(self, name) for name in self.weights]
            size = sum(x.numel() * x.element_size() for x in [*given, *weights] if isinstance(x, Tensor))
            walk(self.steps, self.endings(), [*given, *weights], self.limit or CEILING + GROWTH * size)
            if len(known) < KNOWN:
                known.add(key)

    def endings(self) -> list[list[int]]:
        """For each step the values that no later step uses."""
        found: list[list[int]] | None = self.__dict__.get("ends")
        if found is None:
            found = self.__dict__["ends"] = last_uses(self)
        return found


def last_uses(program: Program) -> list[list[int]]:
    """The numbers of values that may go after each step; inputs, weights and results stay."""
    first = len(program.names) + len(program.weights)
    last = {number: number - first for number in range(first, first + len(program.steps))}
    for at, (_, args, kwargs) in enumerate(program.steps):
        last.update({r: at for r in references([args, kwargs]) if r >= first})
    kept = set(references([program.results]))
    ends: list[list[int]] = [[] for _ in program.steps]
    for number, at in last.items():
        if number not in kept:
            ends[at].append(number)
    return ends


def verify(program: Program, limit: int | None) -> None:
    """Refuse a program that names what may not be, or refers to what is not there yet."""
    own = set(vars(program)) - set(vars(nn.Module()))
    if not own <= Program.STORED or list(program.children()):
        raise PackedError(f"a program has no attributes {sorted(own - Program.STORED)}.")
    for names in (program.names, program.weights):
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise PackedError("a program's inputs and weights have no names.")
    if not all(isinstance(getattr(program, name, None), Tensor) for name in program.weights):
        raise PackedError("a program's weight is not there.")
    if not isinstance(program.steps, list) or len(program.steps) > STEPS:
        raise PackedError("a program has no steps, or too many.")
    known = len(program.names) + len(program.weights)
    for step in program.steps:
        name, args, kwargs = step
        operation(name)
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise PackedError(f"operation {name!r} has no arguments.")
        refer_back(references([args, kwargs]), known)
        known += 1
    refer_back(references([program.results]), known)
    program.__dict__.setdefault("inputs", None)
    program.limit = limit
    if program.inputs is not None:
        program.admit([imagined(shape, kind) for shape, kind in program.inputs])


def imagined(shape: Any, kind: Any) -> Tensor:
    """A tensor without memory."""
    product(shape)
    return torch.empty(shape, dtype=kind, device="meta")


def refer_back(numbers: list[Any], known: int) -> None:
    """References are to values that exist."""
    if not all(type(number) is int and 0 <= number < known for number in numbers):
        raise PackedError("a step refers to a value that is not there yet.")
