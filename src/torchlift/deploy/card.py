"""The card of a delivered model: what goes in, what comes out, how good it is, where it comes from.

{"input": {…}, "output": {…}, "metric": …, "scores": {…}, "size": {…}, "from": {…}}
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from torchlift.deploy.measuring import count_bits

if TYPE_CHECKING:
    from torchlift.train.run.result import Result

INPUTS = ("kind", "columns", "shape", "dtype", "mean", "std")


def card_of(result: "Result") -> dict[str, Any]:
    """The card of a run's model."""
    from torchlift import __version__

    parameters = list(result.model.parameters())
    return {
        "input": input_of(result),
        "output": output_of(result),
        "metric": result.metric,
        "scores": {name: finite(score.metric) for name, score in result.scores.items()},
        "size": {
            "parameters": sum(p.numel() for p in parameters),
            "nonzero": sum(int(p.count_nonzero()) for p in parameters),
            "bits": count_bits(result.model),
        },
        "from": {
            "recipe": result.settings["in short"],
            "seed": result.settings["seed"],
            "epochs": result.cost,
            "torchlift": __version__,
            "torch": str(torch.__version__),
        },
    }


def finite(value: float) -> float | None:
    """A number that JSON has; None for the others."""
    return value if math.isfinite(value) else None


def input_of(result: "Result") -> dict[str, Any]:
    """What the data's reader knows of the inputs; their shape alone where nobody said more."""
    known = {key: result.schema[key] for key in INPUTS if key in result.schema}
    tensors = [leaf for leaf in tree_leaves(result.example) if isinstance(leaf, Tensor) and leaf.ndim]
    if len(tensors) == 1 and "columns" not in known:
        known.setdefault("shape", list(tensors[0].shape[1:]))
        known.setdefault("dtype", str(tensors[0].dtype).removeprefix("torch."))
    return {"kind": "arrays", **known}


def output_of(result: "Result") -> dict[str, Any]:
    """Classes with their names where they are known, or values."""
    loss = str(result.task.loss if isinstance(result.task.loss, str) else result.settings.get("loss", ""))
    return output_by(result.schema, loss)


def output_by(schema: Mapping[str, Any], loss: str) -> dict[str, Any]:
    """The same, by what the data's reader knows and the loss."""
    kind = "values" if "mse" in loss.lower() else "labels" if "bce" in loss.lower() else "classes"
    return {"kind": kind, **{key: schema[key] for key in ("classes", "target") if key in schema}}


def schema_card(schema: Mapping[str, Any], loss: str) -> dict[str, Any]:
    """What a card says of inputs and outputs, by what the data's reader knows; empty if that is nothing."""
    if not schema:
        return {}
    known = {key: schema[key] for key in INPUTS if key in schema}
    return {"input": {"kind": "arrays", **known}, "output": output_by(schema, loss)}
