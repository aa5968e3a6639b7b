"""A trace of a user's model: a copy in double precision, run on inputs of several kinds and sizes."""

import copy

import torch
from torch import nn

from torchlift.core import TorchliftError
from torchlift.deploy.follow import Trace, trace
from torchlift.deploy.probing import Example, as_type, call, many, precise, variations


def traced(model: nn.Module, example: Example) -> Trace:
    """Follow a copy of the model, in double precision where it bears that, in single where it casts."""
    errors: list[str] = []
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
        twin = precise(model, dtype)
        try:
            examples = [as_type(e, dtype) for e in variations(model, example)]
            wide = [as_type(e, dtype) for e in many(model, example)]
            return trace(twin, examples, wide, tolerance)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            errors.append(f"{type(error).__name__}: {error}")
    with torch.no_grad():
        call(copy.deepcopy(model).eval(), example)  # an example the model does not take: let the user see why
    raise TorchliftError(f"{type(model).__name__} runs, but not while it is followed: {errors[-1]}")
