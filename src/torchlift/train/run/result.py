"""What a run gives back."""

import copy
import dataclasses
import datetime
import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchlift.analyze import route
from torchlift.core import Stored, Task, stored
from torchlift.methods.recipe import in_words
from torchlift.train.batches import Source
from torchlift.train.checkpoint import write_durable
from torchlift.train.engines import Engine
from torchlift.train.evaluation import Metric, Score, evaluate
from torchlift.train.history import HistoryRow


def where_and_when(result: "Result") -> str:
    """Data, date and machine in one line, for the head of a report."""
    samples = result.settings.get("samples")
    data = f"{samples} training samples" if samples else ""
    threads = f"{platform.machine()}, {torch.get_num_threads()} of {os.cpu_count()} cores"
    facts = (data, datetime.date.today().isoformat(), f"{threads}, torch {torch.__version__}")
    return " · ".join(fact for fact in facts if fact)


def layer_widths(before: nn.Module, after: nn.Module) -> list[tuple[str, int, int]]:
    """The outputs of each layer with a matrix or a kernel, before and after; 0 for one that is gone."""
    old, new = ({n: len(p) for n, p in m.named_parameters() if p.ndim > 1} for m in (before, after))
    return [(layer_name(before if name in old else after, name), old.get(name, 0), new.get(name, 0))
            for name in old | new]  # fmt: skip


def layer_name(model: nn.Module, weight: str) -> str:
    """features.0.weight of a convolution → features.0 (Conv2d)."""
    owner, _, leaf = weight.rpartition(".")
    name = owner if leaf == "weight" else weight
    return f"{name} ({type(model.get_submodule(owner)).__name__})"


def plain_name(node: str) -> str:
    """``nodes.model/0/weight``, as a lifted problem has it → ``0.weight``, as the user's model has it."""
    return re.sub(r"^(?:base\.)*(?:nodes\.)?", "", node).replace("/", ".").removeprefix("model.")


def short_list(names: Sequence[str], most: int = 8) -> str:
    """The first names, in one line."""
    return ", ".join(names[:most]) + (" …" if len(names) > most else "")


def bit_counts(record: Stored) -> dict[int, int] | None:
    """How many entries of a weight on a grid have how many bits; None where it is on none."""
    if record.precision is None:
        return None
    bits, counts = record.precision.unique(return_counts=True)
    return dict(zip(bits.tolist(), counts.tolist(), strict=True))


@dataclasses.dataclass(frozen=True, repr=False)
class Result:
    """A plain model, and the honest account of how it was found."""

    task: Task
    before: nn.Module
    """The model as it was given, untrained or not."""
    history: list[HistoryRow]
    """A row per epoch: phase, epoch, train_loss, valid_loss, metric, cost, …"""
    cost: float
    """Everything spent, in epochs of plain training of the given model (by FLOPs)."""
    flops: float
    seconds: float
    metric: str
    settings: dict[str, Any]
    phases: list[HistoryRow]
    example: Any
    scores: dict[str, Score]
    engine: Engine
    measure_with: Metric | None = None
    initial_scores: dict[str, Score] = dataclasses.field(default_factory=dict[str, Score])
    """The scores of the model as it was given."""
    counts: dict[str, int] = dataclasses.field(default_factory=dict[str, int])
    """How many labels there are of what was scored, where they can be counted."""
    schema: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """What the data's reader knows of inputs and targets."""

    def __repr__(self) -> str:
        scores = "".join(
            f", {self.metric} {score.metric:.4g} ({name})" for name, score in self.scores.items()
        )
        weights = sum(weight.numel() for weight in self.model.parameters())
        return (
            f"Result({self.settings['method']} of {self.settings['model']}{scores}, "
            f"{weights:,} parameters, cost {self.cost:.3g} plain epochs)"
        )

    @property
    def model(self) -> nn.Module:
        """The plain module: ship it."""
        return self.task.model

    @property
    def stored(self) -> dict[str, Stored]:
        """Levels, step and mask of every weight that was quantized or pruned."""
        return stored(self.model)

    def evaluate(self, data: Source) -> Score:
        """Loss and metric on other data."""
        return evaluate(self.task, data, self.engine, self.measure_with)

    def summary(self) -> dict[str, Any]:
        """The result as plain data, sizes and latency measured now."""
        from torchlift.deploy import measure

        records = self.stored
        base = sum(p.numel() for p in self.before.parameters() if p.requires_grad)
        return {
            "title": f"{type(self.before).__name__}: {self.settings['method']}",
            "about": where_and_when(self),
            "recipe": self.settings["recipe"],
            "method": self.settings["method"],
            "settings": self.settings,
            "metric": self.metric,
            "seed": self.settings["seed"],
            "cost": {"epochs": self.cost, "flops": self.flops, "seconds": self.seconds},
            "results": {name: score.metric for name, score in self.scores.items()},
            "given": {name: score.metric for name, score in self.initial_scores.items()},
            "uncut": self.uncut(),
            "counts": self.counts,
            "widths": layer_widths(self.before, self.model),
            "before": dataclasses.asdict(measure(copy.deepcopy(self.before), self.example)),
            "after": dataclasses.asdict(measure(copy.deepcopy(self.model), self.example, card=self.card)),
            "layers": [
                {
                    "name": name,
                    "entries": p.numel(),
                    "zeros": int((p == 0).sum()),
                    "bits": bit_counts(records.get(name, Stored())),
                }
                for name, p in self.model.named_parameters()
                if p.ndim > 1
            ],
            "route": route(self.model),
            "lifts": [
                {
                    "phase": phase["phase"],
                    "what": ", ".join(in_words(name) for name in phase["what"]),
                    "where": short_list([plain_name(name) for name in phase["where"]]),
                    "added_parameters": phase["parameters"] - base,
                }
                for phase in self.phases
                if "stage" not in phase
            ],
            "stages": [phase for phase in self.phases if "stage" in phase],
        }

    def uncut(self) -> float | None:
        """The validation metric at the end of the last fit before layers were cut; None where none were."""
        fits = [phase for phase in self.phases if "stage" not in phase]
        sizes = [phase["parameters"] for phase in fits]
        cut = next((k for k in range(1, len(sizes)) if sizes[k] < sizes[k - 1]), 0)
        rows = [row for row in self.history if row.get("phase") == fits[cut - 1]["phase"]] if cut else []
        scores = [row["metric"] for row in rows if row.get("metric") is not None]
        return (
            scores[-1]
            if scores and any(b != a for _, b, a in layer_widths(self.before, self.model))
            else None
        )

    @property
    def card(self) -> dict[str, Any]:
        """What goes in, what comes out, how good it is and where it comes from, as plain data."""
        from torchlift.deploy.card import card_of

        return card_of(self)

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML file that tells the story."""
        from torchlift import report

        return report.write(report.run_page(self.history, self.summary()), Path(path))

    def save(self, path: str | Path) -> Path:
        """Write the model as a packed file, its card inside and beside it."""
        from torchlift import deploy

        deploy.save(self, Path(path))
        return Path(path)

    def to_json(self, path: Path) -> None:
        """Write the summary and the history."""
        write_durable(path, json.dumps(self.summary() | {"history": self.history}, default=str).encode())
