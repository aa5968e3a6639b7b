"""Accuracy against file size on CIFAR-10: SMOL, LSQ, BSQ and uniform weights, at equal cost and equal tuning.

python benchmarks/precision_cifar.py --out benchmarks/results/precision_cifar.json

Every method has the same number of trials, judged on validation data with a seed of their own; then every
size is run with each seed and tested. The control retrains from the start with SMOL's precisions, in place
and shuffled within each layer (thesis, Table 5.6). Runs are durable: started again, the script goes on where
it stopped.
"""

import argparse
import dataclasses
import json
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.core import Node, WeightLift
from torchlift.data import Splits, crop_flip
from torchlift.lifts import DoReFa, LearnedStep
from torchlift.lifts.keep_grid import OnGrid
from torchlift.lifts.tools.grid_reading import grid_of
from torchlift.models import LeNet5
from torchlift.recipes import Bsq, Chain, Plain, Smol

TUNING_SEED = 100


def after_training(lift: WeightLift, share: float) -> Chain:
    """Straight-through training from trained weights, as LSQ's authors do."""
    return Chain({"float": Plain(), "bits": lift}, shares={"float": 1 - share, "bits": share})


METHODS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...], Callable[[Any, Any], Any]]] = {
    # the three trials, the sizes, and the recipe of a trial at a size
    "SMOL": (("weight", "channel", "tensor"), (1.0, 2.0), lambda g, b: Smol(bits=b, granularity=g)),
    "LSQ": ((0.25, 0.5, 0.75), (2, 3), lambda share, b: after_training(LearnedStep(bits=b), share)),
    "uniform": ((0.25, 0.5, 0.75), (2, 3), lambda share, b: after_training(DoReFa(bits=b), share)),
    "BSQ": ((0.25, 0.5, 0.75), (0.3, 0.1), lambda share, s: Bsq(strength=s, finetune=share)),
}


@dataclasses.dataclass(frozen=True)
class Fixed(WeightLift):
    """Weights trained straight through at precisions that are given."""

    grids: Mapping[str, tuple[Tensor, float]]
    where: str = "*weight"

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """Each weight on the grid it is given."""
        return {name: OnGrid(w, *self.grids[name.removeprefix("model.")]) for name, w in weights.items()}


def grids(model: nn.Module, shuffled: int | None) -> dict[str, tuple[Tensor, float]]:
    """The precisions of a quantised model; with a seed, permuted within each layer."""
    found: dict[str, tuple[Tensor, float]] = {}
    generator = torch.Generator().manual_seed(shuffled or 0)
    for name, weight in model.named_parameters():
        grid = grid_of(weight) if weight.ndim > 1 else None
        if grid is not None:
            bits, scale = grid
            order = torch.randperm(bits.numel(), generator=generator)
            found[name] = (bits if shuffled is None else bits.flatten()[order].view_as(bits), scale)
    return found


@dataclasses.dataclass
class Bench:
    """Data and settings all runs share."""

    data: Splits
    epochs: float
    work: Path

    def run(self, name: str, recipe: Any, seed: int, share: float = 1.0) -> tuple[nn.Module, dict[str, Any]]:
        """One durable run, and its row: file on disk, validation and test accuracy."""
        torch.manual_seed(seed)
        result = tl.fit(
            LeNet5(init="xavier"),
            self.data.train,
            self.data.valid,
            test=self.data.test,
            recipe=recipe,
            epochs=share * self.epochs,
            optimizer=partial(torch.optim.SGD, lr=5e-2, momentum=0.9, weight_decay=5e-4),
            schedule="cosine",
            augment=crop_flip,
            equal_cost=True,
            batch_size=128,
            seed=seed,
            progress=False,
            out=self.work / f"{name} {seed}".replace(" ", "_"),
            resume=True,
        )
        path = self.work / "last.tl"
        row = {
            "run": name,
            "seed": seed,
            "file_bytes": tl.deploy.save(result.model, path),
            "valid": round(result.scores["valid"].metric, 4),
            "test": round(result.scores["test"].metric, 4),
            "cost_epochs": round(result.cost, 3),
            "bits": result.history[-1].get("bits"),
        }
        print(json.dumps(row), flush=True)
        return result.model, row


def tuned(bench: Bench, method: str, rows: list[dict[str, Any]]) -> Any:
    """The best of three trials at the larger size, by accuracy on validation data (ties: smaller file)."""
    trials, sizes, make = METHODS[method]
    found = [bench.run(f"tune {method} {t}", make(t, sizes[1]), TUNING_SEED)[1] for t in trials]
    rows += found
    best = max(found, key=lambda row: (row["valid"], -row["file_bytes"]))
    return trials[found.index(best)]


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means and spreads over seeds of each arm."""
    arms = dict.fromkeys(row["run"] for row in rows if not row["run"].startswith("tune"))
    found: list[dict[str, Any]] = []
    for arm in arms:
        own = [row for row in rows if row["run"] == arm]
        tests = [row["test"] for row in own]
        found.append(
            {
                "run": arm,
                "seeds": len(own),
                "file_bytes": round(statistics.fmean(r["file_bytes"] for r in own)),
                "test": round(statistics.fmean(tests), 4),
                "sd": round(statistics.stdev(tests), 4) if len(tests) > 1 else None,
            }
        )
    return found


def main() -> None:
    """Tune, run, control; write after every run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=float, default=6)
    parser.add_argument("--images", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("runs/precision_cifar"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    whole = tl.data.load("cifar10")
    train, valid = (
        tuple(t[:n] for t in part) for part, n in ((whole.train, options.images), (whole.valid, 1000))
    )
    bench = Bench(Splits(train, valid, whole.test, whole.kind), options.epochs, options.work)
    options.work.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []

    def write(complete: bool = False) -> None:
        text = json.dumps(
            {
                "what": "LeNet-5 on CIFAR-10, crops and flips: test accuracy against packed file",
                "scale": f"{options.images} images, {options.epochs:g} epochs a run, {options.seeds} seeds",
                "complete": complete,
                "chosen": chosen,
                "torch": torch.__version__,
                "arms": summary(rows),
                "rows": rows,
            },
            indent=1,
        )
        if options.out:
            options.out.write_text(text + "\n")

    chosen: dict[str, Any] = {}
    for method in METHODS:
        chosen[method] = tuned(bench, method, rows)
        write()
    for seed in range(options.seeds):
        rows.append(bench.run("dense", None, seed)[1])
        for method, (_, sizes, make) in METHODS.items():
            for size in sizes:
                rows.append(bench.run(f"{method} {size:g}", make(chosen[method], size), seed)[1])
                write()
        model, _ = bench.run("SMOL per weight 2", Smol(bits=2.0, granularity="weight"), seed)
        for name, order in (("same precisions", None), ("shuffled precisions", seed + 1)):
            rows.append(bench.run(name, Fixed(grids(model, order)), seed, share=0.5)[1])
        write()
    write(complete=True)


if __name__ == "__main__":
    main()
