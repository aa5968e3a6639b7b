"""``predict``: new data through a delivered model, by its card."""

import csv
import dataclasses
import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.data.schema import encode_inputs
from torchlift.errors import TorchliftError
from torchlift.loss import output
from torchlift.packed.file import card_path, load, read_card

MODEL = "model.tl"
Where = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Predictions:
    """What a model says of each sample."""

    samples: list[str]
    """A name for each: the line of a table, the file of a picture, a number."""
    outputs: Tensor
    """Probabilities of the classes, or values."""
    classes: list[str] | None
    """The names of the classes; None where values are predicted."""
    target: str = "value"
    several: bool = False
    """Whether a sample may have several of the classes, or none."""

    @property
    def labels(self) -> list[str]:
        """The likeliest class of each sample; where it may have several, those that are likelier than not."""
        if self.classes is None:
            raise TorchliftError("the model predicts values, not classes: see .outputs")
        if self.several:
            likely = (self.outputs > 0.5).tolist()
            return [", ".join(itertools.compress(self.classes, row)) for row in likely]
        return [self.classes[int(index)] for index in self.outputs.argmax(1)]

    def rows(self) -> list[dict[str, Any]]:
        """A table: sample, label and probability, or sample and a number for each label or value; numbers
        to six digits (``outputs`` has all of them)."""
        if self.classes is not None and not self.several:
            best = [to_six(value) for value in self.outputs.max(1).values.tolist()]
            named = zip(self.samples, self.labels, best, strict=True)
            return [{"sample": s, self.target: label, "probability": p} for s, label, p in named]
        width = self.outputs.shape[1]
        names = [self.target] if width == 1 else [f"{self.target}_{column}" for column in range(width)]
        names = names if self.classes is None else [f"probability of {name}" for name in self.classes]
        return [
            {"sample": sample, **dict(zip(names, map(to_six, values), strict=True))}
            for sample, values in zip(self.samples, self.outputs.tolist(), strict=True)
        ]

    def save(self, path: Where) -> Path:
        """Write the table as .csv."""
        rows = self.rows()
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else ["sample"])
            writer.writeheader()
            writer.writerows(rows)
        return Path(path)


def to_six(value: float) -> float:
    """To six digits, about as many as 32 bits have."""
    return float(f"{value:.6g}")


def packed_of(path: Where) -> Path:
    """The packed file: the path itself, or that of a run's folder."""
    file = Path(path)
    if not file.is_dir():
        return file
    if (file / MODEL).is_file():
        return file / MODEL
    history = file / "history.jsonl"
    rows = history.read_text().count("\n") if history.is_file() else 0
    runs = sorted(folder.parent.name for folder in file.glob(f"*/{MODEL}"))
    far = f"the run stopped after {rows} epochs: go on with resume=True" if rows else "no run ended there"
    far = f"give one of the runs in it: {', '.join(runs[:8])}" if runs else far
    raise TorchliftError(f"{file} has no {MODEL}: {far}.")


def load_run(path: Where, *, into: nn.Module | None = None, limit: int | None = None) -> nn.Module:
    """The model of a run's folder or packed file; ``into`` as in :func:`torchlift.deploy.load`."""
    return load(packed_of(path), into=into, limit=limit)


def load_card(path: Where) -> dict[str, Any]:
    """The card of a run's folder or packed file."""
    file = packed_of(path)
    card = read_card(file)
    beside = card_path(file)
    if not card and beside.is_file():
        card = json.loads(beside.read_text())
    return card


@torch.no_grad()
def predict(
    source: Where | nn.Module,
    data: Any,
    *,
    into: nn.Module | None = None,
    card: dict[str, Any] | None = None,
    batch_size: int = 256,
    limit: int | None = None,
) -> Predictions:
    """What a delivered model says of new data.

    ``source``: a run's folder, a packed file, or a model (with its ``card``). ``data``: a .csv file, a folder
    of pictures, an .npz file, an array or a tensor, or a tuple of them where a model takes several; columns,
    words, sizes and scales are those of the card. ``into``: a fresh instance, where the file holds weights
    alone.
    """
    if isinstance(source, nn.Module):
        model, card = source, card or {}
    else:
        card = load_card(source) if card is None else card
        model = load_run(source, into=into, limit=limit)
    inputs, samples = new_inputs(card.get("input", {}), data)
    model = model.eval()
    first = next(model.parameters(), None)
    if first is not None:
        inputs = [x.to(first.device, first.dtype if x.is_floating_point() else None) for x in inputs]
    batches = zip(*(x.split(batch_size) for x in inputs), strict=True)
    outputs = torch.cat([output(model(*batch)) for batch in batches]).float().cpu()
    output_schema = card.get("output", {})
    if output_schema.get("kind", "classes") == "values":
        values = in_units(outputs.flatten(1), output_schema.get("scale"))
        return Predictions(samples, values, None, str(output_schema.get("target", "value")))
    if outputs.ndim != 2:
        raise TorchliftError(
            f"predict: the model gives outputs of shape {tuple(outputs.shape)}, not classes."
        )
    several = output_schema.get("kind") == "labels"
    names = output_schema.get("classes") or [str(number) for number in range(outputs.shape[1])]
    if len(names) != outputs.shape[1]:
        raise TorchliftError(
            f"the card names {len(names)} classes, the model gives {outputs.shape[1]} outputs."
        )
    return Predictions(
        samples,
        outputs.sigmoid() if several else outputs.softmax(1),
        [str(name) for name in names],
        str(output_schema.get("target", "label")),
        several,
    )


def new_inputs(schema: Mapping[str, Any], data: Any) -> tuple[list[Tensor], list[str]]:
    """The inputs of a model from new data, and a name for each sample."""
    shapes = schema.get("shapes")
    if shapes is None:
        x, samples = encode_inputs(schema, data)
        return [x], samples
    if not isinstance(data, tuple) or len(data) != len(shapes):
        raise TorchliftError(f"the model takes {len(shapes)} inputs: give a tuple of {len(shapes)} arrays.")
    encoded = [encode_inputs({"shape": shape}, array) for shape, array in zip(shapes, data, strict=True)]
    if len({len(samples) for _, samples in encoded}) > 1:
        raise TorchliftError("the inputs have different numbers of samples: give as many of each.")
    return [x for x, _ in encoded], encoded[0][1]


def in_units(values: Tensor, scale: Mapping[str, Any] | None) -> Tensor:
    """Values that a model was trained on standardized, as they stood in the data."""
    if scale is None:
        return values
    return values * torch.tensor(scale["std"]) + torch.tensor(scale["mean"])
