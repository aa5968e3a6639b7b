"""A trace of a user's model: a copy in double precision, run on inputs of several kinds and sizes."""

import dataclasses

import torch
from torch import nn

from torchlift.channels.example_inputs import (
    Example,
    as_type,
    check_plain,
    few,
    many,
    precise,
    taken,
    variations,
)
from torchlift.channels.follow import Trace, trace
from torchlift.errors import TorchliftError

FAILURES = (RuntimeError, TypeError, ValueError, IndexError)


@dataclasses.dataclass(frozen=True, eq=False)
class Probe:
    """The inputs a model is tried on."""

    examples: list[Example]
    generic: list[Example]

    @classmethod
    def of(cls, model: nn.Module, example: Example, *, brief: bool = False) -> "Probe":
        """Variations of an example that the model takes; one that it does not take is refused in one line.

        ``brief``: fewer of them, and none for weights drawn anew.
        """
        twin = taken(model, example)
        return cls(variations(twin, example, 5 if brief else 6), [] if brief else many(twin, example))

    @property
    def ends(self) -> "Probe":
        """The first and the last input alone: enough to find couplings."""
        return Probe([self.examples[0], self.examples[-1]], [])


def outlined(model: nn.Module, example: Example) -> tuple[Trace, nn.Module, Example]:
    """Couplings and costs alone, from one run; the copy that ran, for evaluation; and what it was given."""
    check_plain(model)
    double = any(p.dtype == torch.float64 for p in model.parameters())
    errors: list[Exception] = []
    for given in few(example), example:
        for dtype in (torch.float64, torch.float32) if double else (torch.float32, torch.float64):
            twin = precise(model, dtype)
            try:
                return trace(twin, [as_type(given, dtype)], [], 0.0, values=False), twin, given
            except FAILURES as error:
                errors.append(error)
    taken(model, example)
    raise unfollowed(model, errors[-1])


def unfollowed(model: nn.Module, error: Exception) -> TorchliftError:
    """What is said of a model that cannot be followed."""
    why = f"{type(error).__name__}: {error}"
    return TorchliftError(f"{type(model).__name__} runs, but not while it is followed: {why}")


def traced(model: nn.Module, example: Example, probe: Probe | None = None) -> Trace:
    """Follow a copy of the model, in double precision where it bears that, in single where it casts."""
    probe = probe or Probe.of(model, example)
    errors: list[Exception] = []
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
        examples, generic = ([as_type(e, dtype) for e in some] for some in (probe.examples, probe.generic))
        try:
            return trace(precise(model, dtype), examples, generic, tolerance)
        except FAILURES as error:
            errors.append(error)
    raise unfollowed(model, errors[-1])
