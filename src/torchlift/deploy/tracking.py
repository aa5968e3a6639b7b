"""A trace of a user's model: a copy in double precision, run on inputs of several kinds and sizes."""

import copy
import dataclasses

import torch
from torch import nn

from torchlift.deploy.follow import Trace, trace
from torchlift.deploy.probing import Example, as_type, call, many, precise, variations
from torchlift.errors import TorchliftError


@dataclasses.dataclass(frozen=True, eq=False)
class Probe:
    """The inputs a model is tried on."""

    examples: list[Example]
    generic: list[Example]

    @classmethod
    def of(cls, model: nn.Module, example: Example) -> "Probe":
        """Variations of an example that the model takes; one that it does not take is refused in one line."""
        try:
            with torch.no_grad():
                call(copy.deepcopy(model).eval(), example)
        except (RuntimeError, TypeError, IndexError) as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise TorchliftError(
                f"{type(model).__name__} does not take this example ({why}): pass one that it does."
            ) from error
        return cls(variations(model, example), many(model, example))


def traced(model: nn.Module, example: Example, probe: Probe | None = None, *, brief: bool = False) -> Trace:
    """Follow a copy of the model, in double precision where it bears that, in single where it casts.

    ``brief``: couplings alone, from two inputs; what the channels carry is not looked at.
    """
    probe = probe or Probe.of(model, example)
    if brief:
        probe = Probe([probe.examples[0], probe.examples[-1]], [])
    errors: list[str] = []
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
        examples, generic = ([as_type(e, dtype) for e in some] for some in (probe.examples, probe.generic))
        try:
            return trace(precise(model, dtype), examples, generic, tolerance)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            errors.append(f"{type(error).__name__}: {error}")
    raise TorchliftError(f"{type(model).__name__} runs, but not while it is followed: {errors[-1]}")
