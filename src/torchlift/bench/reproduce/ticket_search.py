"""Ticket search: CS, sequential CS, IMP, IMP-C, ISS (thesis Figures 4.3–4.4, 4.11–4.13, Table 4.2)."""

import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import SGD

import torchlift as tl
from torchlift.core import Task
from torchlift.data import Splits, load
from torchlift.models import MLP, resnet
from torchlift.recipes import IterativeMagnitude, IterativeStochastic, SequentialSparsification, TicketSearch
from torchlift.recipes.pruning import sparsity, weights

PAPER = {"IMP": 0.209, "IMP-C": 0.167, "CS": 0.123}  # Table 4.2, ResNet-20: weights left, sparsest matching
STARTS = (-0.05, -0.02, 0.0)


def searches(rounds: int, rewind: int) -> dict[str, Any]:
    """The searches: CS with several s_init as in the thesis; the others with several rates."""
    found: dict[str, Any] = {}
    for start in STARTS:
        found[f"CS, s_init {start}"] = TicketSearch(rounds, rewind, s_init=start)
    for rate in (0.3, 0.5, 0.6):
        found[f"IMP, rate {rate}"] = IterativeMagnitude(rounds, rate, rewind)
        found[f"IMP-C, rate {rate}"] = IterativeMagnitude(rounds, rate)
        found[f"sequential CS, rate {rate}"] = SequentialSparsification(rounds, rate, rewind)
    found["ISS, s_init 1"] = IterativeStochastic(rounds, rewind)
    return found


def setting(scale: float, data: str | Path | None) -> tuple[str, Any, Splits, float, int]:
    """Network, data, epochs per round, rounds: ResNet-20 on CIFAR-10, or a perceptron on digits."""
    if scale >= 1:
        return "ResNet-20, CIFAR-10", partial(resnet, 20), load("cifar10", data), 85.0, 5
    return "64-300-100-10 on scikit-learn's digits", partial(MLP, 64, 300, 100, 10), load("digits"), 15.0, 3


def run(
    out: Path = Path("runs/reproduce"), data: str | None = None, seeds: int = 3, scale: float = 0.02
) -> dict[str, Any]:
    """Every search on every seed; each ticket trained as long as a round, beside the dense network."""
    del out
    title, make, splits, epochs, rounds = setting(scale, data)
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        model = make()
        rows.append(trial("dense", None, model, splits, epochs, seed))
        for name, recipe in searches(rounds, 2).items():
            rows.append(trial(name, recipe, model, splits, epochs * (rounds + 1), seed))
    return {
        "title": f"Ticket search: {title}", "finding": finding(rows), "scale": scale, "seeds": seeds,
        "epochs_per_round": epochs, "rounds": rounds, "torch": torch.__version__, "paper": PAPER,
        "rows": rows,
    }  # fmt: skip


def trial(
    name: str, recipe: Any, model: nn.Module, splits: Splits, epochs: float, seed: int
) -> dict[str, Any]:
    """One search, or plain training."""
    result = tl.fit(
        model, splits.train, test=splits.test, recipe=recipe, epochs=epochs, seed=seed, progress=False,
        optimizer=partial(SGD, lr=0.1, momentum=0.9, weight_decay=1e-4), batch_size=64,
    )  # fmt: skip
    found = weights(Task(result.model), "*weight")
    layers = {n.removeprefix("model."): round(float((w == 0).double().mean()), 4) for n, w in found.items()}
    accuracy = result.scores["test"].metric
    return {
        "method": name,
        "seed": seed,
        "left": round(1 - sparsity(found), 4),
        "accuracy": round(accuracy, 4),
        "layers": layers,
    }


def finding(rows: list[dict[str, Any]]) -> str:
    """Of each kind of search, the sparsest setting whose mean accuracy matches the dense network's."""
    dense = statistics.fmean(row["accuracy"] for row in rows if row["method"] == "dense")
    best: dict[str, float] = {}
    for name in dict.fromkeys(row["method"] for row in rows if row["method"] != "dense"):
        own = [row for row in rows if row["method"] == name]
        if statistics.fmean(row["accuracy"] for row in own) >= dense:
            kind = name.partition(",")[0]
            best[kind] = min(best.get(kind, 1.0), statistics.fmean(row["left"] for row in own))
    told = ", ".join(f"{kind} {100 * left:.1f} %" for kind, left in sorted(best.items(), key=lambda i: i[1]))
    return (
        f"Weights left in the sparsest matching tickets (dense {dense:.3f}): {told or 'no search matched'}."
    )
