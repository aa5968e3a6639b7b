"""Linearity and alignment of layers while a network trains, for the history."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from torchlift.analyze.alignment import cka
from torchlift.analyze.neurons import neurons
from torchlift.core import Problem
from torchlift.flow.activity import input_pieces, visit
from torchlift.flow.ops import Op
from torchlift.tree import each


@dataclasses.dataclass(frozen=True)
class Depth:
    """A ``log`` for ``fit``: every epoch, for each layer, its linearity and its CKA with the layer before.

    ``tl.fit(model, train, log=tl.analyze.Depth(x))``. The columns are called ``linearity <layer>`` and
    ``cka <layer>``; the report draws them as maps of layers over epochs. ``x`` are the inputs to look at,
    ``samples`` of them for CKA. Problems whose weights are lifted have no layers to look at: no columns.
    """

    x: Any = dataclasses.field(repr=False, compare=False)
    cka: bool = True
    samples: int = 256
    zero: float = 0.0

    def __call__(self, problem: Problem) -> dict[str, float]:
        """The numbers of one epoch."""
        model = problem.body()
        if model is None:
            return {}
        numbers = {
            f"linearity {name}": one.linearity for name, one in neurons(model, self.x, self.zero).items()
        }
        if not self.cka:
            return numbers
        return numbers | {f"cka {name}": value for name, value in self.alignments(problem).items()}

    def alignments(self, problem: Problem) -> dict[str, float]:
        """CKA of every layer's output with that of the layer before it; the first one's with the inputs."""
        model = problem.body()
        assert model is not None
        few = each(lambda t: t[: self.samples], self.x)
        shown: dict[str, list[Tensor]] = {}

        def see(name: str, _: Op, __: Tensor, a: Tensor) -> None:
            shown.setdefault(name, []).append(a)

        visit(model, few, see)
        outputs = {name: torch.cat(outputs_so_far).flatten(1) for name, outputs_so_far in shown.items()}
        inputs = list(input_pieces(few, model))
        values = [torch.cat(inputs) if isinstance(inputs[0], Tensor) else None, *outputs.values()]
        return {
            name: cka(before, after)
            for name, before, after in zip(outputs, values, outputs.values(), strict=False)
            if before is not None and before.is_floating_point() and len(before) == len(after)
        }
