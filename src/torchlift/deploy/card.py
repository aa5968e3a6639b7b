"""The card of a delivered model: what goes in, what comes out, how good it is, where it comes from.

{"input": {…}, "output": {…}, "metric": …, "scores": {…}, "targets": {…}, "size": {…}, "from": {…}}
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from torchlift.deploy.measuring import count_bits, file_sizes

if TYPE_CHECKING:
    from torchlift.train.run.result import Result

INPUTS = ("kind", "columns", "shape", "shapes", "dtype", "mean", "std")


SLACK = 12
"""Bytes by which the card of a run may turn out longer than its draft."""


def card_of(result: "Result") -> dict[str, Any]:
    """The card of a run's model."""
    from torchlift import __version__

    parameters = list(result.model.parameters())
    targets = targets_of(result.history)
    return {
        "input": input_of(result.schema, result.example),
        "output": output_by(result.schema, loss_of(result)),
        "metric": result.metric,
        "scores": {name: finite(score.metric) for name, score in result.scores.items()},
        **({"targets": targets} if targets else {}),
        "size": {
            "parameters": sum(p.numel() for p in parameters),
            "nonzero": sum(int(p.count_nonzero()) for p in parameters),
            "bits": count_bits(result.model),
        },
        "from": {
            "recipe": result.settings["in short"],
            "data": result.settings.get("data", ""),
            "seed": result.settings["seed"],
            "epochs": finite(result.cost),
            "torchlift": __version__,
            "torch": str(torch.__version__),
        },
    }


def draft_size(result: "Result") -> int:
    """About how many bytes of its file the card of a run will take, before the run: a little too many."""
    return file_sizes(result.model, card_of(result))[0] - file_sizes(result.model)[0] + SLACK


def targets_of(history: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """What the recipe was to reach, and what it achieved in the end."""
    end = next((row for row in reversed(history) if any(key.endswith("_target") for key in row)), {})
    names = [key.removesuffix("_target") for key in end if key.endswith("_target")]
    return {n: {"target": end[f"{n}_target"], "achieved": end[n]} for n in names if n in end}


def finite(value: float) -> float | None:
    """A number that JSON has, to six digits; None for the others."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def input_of(schema: Mapping[str, Any], example: Any) -> dict[str, Any]:
    """What the data's reader knows of the inputs; their shape alone where nobody said more."""
    inputs = {key: schema[key] for key in INPUTS if key in schema}
    tensors = [leaf for leaf in tree_leaves(example) if isinstance(leaf, Tensor) and leaf.ndim]
    if len(tensors) == 1 and "columns" not in inputs:
        inputs.setdefault("shape", list(tensors[0].shape[1:]))
        inputs.setdefault("dtype", str(tensors[0].dtype).removeprefix("torch."))
    elif len(tensors) > 1:
        inputs.setdefault("shapes", [list(tensor.shape[1:]) for tensor in tensors])
    return {"kind": "arrays", **inputs}


def loss_of(result: "Result") -> str:
    """The name of the loss, as far as it has one."""
    return str(result.task.loss if isinstance(result.task.loss, str) else result.settings.get("loss", ""))


def output_by(schema: Mapping[str, Any], loss: str) -> dict[str, Any]:
    """The same, by what the data's reader knows and the loss."""
    kind = "values" if "mse" in loss.lower() else "labels" if "bce" in loss.lower() else "classes"
    return {"kind": kind, **{key: schema[key] for key in ("classes", "target", "scale") if key in schema}}


def schema_card(schema: Mapping[str, Any], loss: str) -> dict[str, Any]:
    """What a card says of inputs and outputs, by what the data's reader knows; empty if that is nothing."""
    if not schema:
        return {}
    inputs = {key: schema[key] for key in INPUTS if key in schema}
    return {"input": {"kind": "arrays", **inputs}, "output": output_by(schema, loss)}
