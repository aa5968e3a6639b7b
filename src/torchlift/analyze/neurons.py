"""What every neuron of a network does on data: its inputs and outputs, layer by layer, in one pass."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.core import Problem
from torchlift.errors import OrderError
from torchlift.flow.activity import input_pieces, moments
from torchlift.flow.affine import Moments
from torchlift.flow.trace import flow


@dataclasses.dataclass(frozen=True)
class Neurons:
    """The neurons of a layer on data: |ρ| of input and output, and those that have none, by number."""

    correlation: Tensor
    """NaN where a neuron is constant or left out."""
    constant: tuple[int, ...]
    """Neurons whose output (a dead ReLU's, say) or input does not change on the data."""
    zero: tuple[int, ...]
    """Neurons left out because nearly no weight goes in or out."""
    moments: Moments

    @property
    def linearity(self) -> float:
        """min |ρ| over the neurons that vary (eq. 5.1); 1 where none does: a constant is affine."""
        correlations = self.correlation[~self.correlation.isnan()]
        return float(correlations.min()) if correlations.numel() else 1.0

    @property
    def worst(self) -> int | None:
        """The neuron that is least linear."""
        correlations = torch.nan_to_num(self.correlation, nan=2.0)
        return int(correlations.argmin()) if bool((correlations < 2).any()) else None


def model_of(problem: nn.Module) -> nn.Module:
    """The model of a problem, or the model itself."""
    if not isinstance(problem, Problem):
        return problem
    body = problem.body()
    if body is None:
        raise OrderError(
            f"the weights of this {type(problem).__name__} are lifted: project it, then look at it."
        )
    return body


def neurons(model: nn.Module, x: Any, zero: float = 0.0) -> dict[str, Neurons]:
    """The neurons of every layer that an activation follows, on the inputs ``x``, in order.

    ``zero``: neurons are left out whose weights in and weights out are both below that part of the layer's
    largest (the paper does so for ReLU).
    """
    model = model_of(model)
    by_layer = moments(model, x)
    small = zero_neurons(model, next(input_pieces(x, model)), zero) if zero else {}
    return {name: described(one, small.get(name, ())) for name, one in by_layer.items()}


def described(moments: Moments, zero: Iterable[int]) -> Neurons:
    """Neurons from their moments."""
    correlation, left_out = moments.correlation, tuple(zero)
    correlation[list(left_out)] = torch.nan
    constant = tuple(moments.constant.nonzero().flatten().tolist())
    return Neurons(correlation, tuple(n for n in constant if n not in left_out), left_out, moments)


def zero_neurons(model: nn.Module, x: Any, fraction: float) -> dict[str, tuple[int, ...]]:
    """Neurons with hardly any weight in or out, by layer, where another layer follows."""
    shape = flow(model, x)
    indices: dict[str, tuple[int, ...]] = {}
    for op in shape.of("activation"):
        after = shape.next(op)
        if op.layer and not isinstance(after, str) and after.kind == "layer":
            into = row_norms(model.get_submodule(op.layer).get_parameter("weight"))
            out = row_norms(model.get_submodule(after.name).get_parameter("weight").transpose(0, 1))
            if len(into) == len(out):
                small = (into < fraction * into.max()) & (out < fraction * out.max())
                indices[op.layer] = tuple(small.nonzero().flatten().tolist())
    return indices


def row_norms(weight: Tensor) -> Tensor:
    """The norm of each row."""
    return weight.detach().flatten(1).norm(dim=1)


def linearity(model: nn.Module, x: Any, zero: float = 0.0) -> dict[str, float]:
    """min over neurons of |ρ(input, output)|, layer by layer: 1 where a layer acts linearly on the data.

    Bai et al. (2024), eq. 5.1; ``x`` is taken in pieces, or from a loader, so that any number of inputs will
    do. Constant neurons have no correlation and are passed over: :func:`neurons` names them. A layer is
    called as the Linear or convolution before the activation; an activation after anything else by the module
    that computes it.
    """
    return {name: layer.linearity for name, layer in neurons(model, x, zero).items()}
