"""How far two networks' outputs are apart: Σ ‖y − ŷ‖² / Σ ‖y − ȳ‖² over the calibration data."""

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from torchlift.channels.example_inputs import tensors
from torchlift.compress.calibration import distributed
from torchlift.compress.running import run
from torchlift.errors import TorchliftError


def prediction(result: Any) -> Tensor:
    """The tensor that a model's output is judged by: its logits, or its first floating-point one."""
    logits = getattr(result, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    output = next((t for t in tensors(result) if t.is_floating_point()), None)
    if output is None:
        raise TorchliftError(f"no floating-point tensor in a model output of type {type(result).__name__}.")
    return output


def rows(result: Any) -> Tensor:
    """A model's output as rows of features."""
    y = prediction(result).to(torch.float64, copy=True)
    return y.reshape(-1, y.shape[-1]) if y.ndim > 1 else y[:, None]


def square(y: Tensor) -> Tensor:
    """Σ y², (1,)."""
    return torch.linalg.vector_norm(y).square()[None]


def output_error(original: nn.Module, other: nn.Module, batches: Iterable[Any]) -> float:
    """Σ ‖y − ŷ‖² / Σ ‖y − ȳ‖², summed over batches and processes."""
    total: Tensor | None = None
    for inputs in batches:
        y = rows(run(original, inputs))
        terms = [y.sum(0), square(y), y.new_full((1,), len(y))]
        terms.insert(2, square(y.sub_(rows(run(other, inputs)))))
        batch_sums = torch.cat(terms)
        total = batch_sums if total is None else total + batch_sums
    if total is None:
        return 0.0
    if distributed():
        dist.all_reduce(total)
    sums, squares, gap, count = total[:-3], total[-3], total[-2], total[-1]
    energy = float(squares - sums.square().sum() / count)
    return float(gap) / energy if energy > 0 else float(gap)
