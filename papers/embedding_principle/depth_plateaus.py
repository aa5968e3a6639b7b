"""Figures 1, 3, 4, 10, 11: deep and shallow networks stall at the same losses, with linear layers."""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import torchlift as tl
from papers.common.arms import machine
from papers.common.cells import Cells
from papers.embedding_principle.traces import SOURCE, Pair, flowers, gaussian, plateaus, sine, steps, trained
from torchlift.core import Task
from torchlift.data.images import mnist
from torchlift.lifts import merging

PER = 100
SEEDS = 2


class Skipping(nn.Module):
    """x + σ(W x + b)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear, self.activation = nn.Linear(width, width), nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        """The input and what the layer adds to it."""
        return x + self.activation(self.linear(x))


def plain(activation: type[nn.Module]) -> Callable[[int, int, int], nn.Module]:
    """Layers of 50."""
    return lambda inputs, hidden, outputs: tl.models.MLP(
        inputs, *[50] * hidden, outputs, activation=activation
    )


def residual(inputs: int, hidden: int, outputs: int) -> nn.Module:
    """Layers of 50, from the second on with a skip connection."""
    more = [Skipping(50) for _ in range(hidden - 1)]
    return nn.Sequential(nn.Linear(inputs, 50), nn.Tanh(), *more, nn.Linear(50, outputs))


@dataclasses.dataclass(frozen=True)
class Setting:
    """A task and how it is trained."""

    figure: str
    data: Callable[[str | None], Pair]
    network: Callable[[int, int, int], nn.Module]
    std: tuple[float, float]
    """Of the initial weights of the shallow and of the deep network: both have to start near a constant."""
    lr: float
    steps: int


def digits(folder: str | None) -> Pair:
    """500 digits with one-hot targets."""
    (x, y), _ = mnist(folder)
    return x[:500].flatten(1).float() / 255, nn.functional.one_hot(y[:500], 10).float()


SETTINGS = {
    "steps, tanh": Setting("3", lambda _: steps(), plain(nn.Tanh), (0.1, 0.1), 0.05, 12_000),
    "sine, tanh": Setting("3", lambda _: sine(), plain(nn.Tanh), (0.1, 0.1), 0.05, 6_000),
    "iris, tanh": Setting("4", lambda _: flowers(), plain(nn.Tanh), (0.003, 0.03), 0.1, 6_000),
    "iris, ReLU": Setting("1(a, b)", lambda _: flowers(), plain(nn.ReLU), (0.03, 0.1), 0.02, 4_000),
    "MNIST, tanh": Setting("1(c, d)", digits, plain(nn.Tanh), (0.003, 0.05), 0.1, 2_000),
    "sine, ReLU": Setting("10", lambda _: sine(), plain(nn.ReLU), (0.07, 0.07), 0.05, 6_000),
    "sine, residual": Setting("11", lambda _: sine(), residual, (0.1, 0.1), 0.02, 4_000),
}


def network(setting: Setting, data: Pair, hidden: int, seed: int) -> nn.Module:
    """All parameters from N(0, std²)."""
    model = setting.network(data[0].shape[1], hidden, data[1].shape[1])
    return gaussian(model, setting.std[hidden > 1], seed)


def gradient(model: nn.Module, data: Pair) -> float:
    """The largest entry of the gradient."""
    slopes = torch.autograd.grad(Task(model, "mse")(data), list(model.parameters()))
    return max(float(slope.abs().max()) for slope in slopes)


def trial(
    setting: Setting,
    hidden: int,
    seed: int,
    steps: float | None,
    data: str | None,
    page: Path | None,
    device: str | None,
) -> dict[str, Any]:
    """One network: its losses, the linearity of its layers, and what is left of it at its plateaus."""
    pair = setting.data(data)
    model = network(setting, pair, hidden, seed)
    epochs = max(4, int((steps or setting.steps) / PER))
    trace = trained(model, pair, setting.lr, epochs, seed, per=PER, keep=hidden > 1, page=page, device=device)
    stalls: list[dict[str, Any]] = [
        {"epoch": e + 1, "loss": loss, "linearity": trace.linearity[e]} for e, loss in plateaus(trace.losses)
    ]
    for stall in stalls if hidden > 1 else []:
        task = Task(model, "mse")
        task.load_state_dict(trace.states[stall["epoch"]])
        done = merging(task.model, pair[0], 0.99)
        stall |= {
            "gradient": gradient(task.model, pair),
            "reduced to": done.depth[1],
            "reduced loss": Task(done.model, "mse")(pair).item(),
            "reduced gradient": gradient(done.model, pair),
        }
    return {
        "hidden": hidden,
        "seed": seed,
        "start": trace.losses[0],
        "end": trace.losses[-1],
        "plateaus": stalls,
        **trace.short(),
    }


def row(name: str, trials: list[dict[str, Any]]) -> dict[str, Any]:
    """One setting: where shallow and deep networks stalled, how linear the deep ones were there."""
    shallow = [p["loss"] for one in trials if one["hidden"] == 1 for p in one["plateaus"]]
    deep = [p for one in trials if one["hidden"] > 1 for p in one["plateaus"]]
    apart = [min(abs(p["loss"] - other) / other for other in shallow) for p in deep] if shallow else []
    return {
        "setting": name,
        "figure": SETTINGS[name].figure,
        "plateaus, shallow": [float(f"{loss:.4g}") for loss in shallow],
        "plateaus, deep": [float(f"{p['loss']:.4g}") for p in deep],
        "apart": float(f"{max(apart):.3g}") if apart else "never",
        "linear layers there": [sum(v > 0.99 for v in p["linearity"]) for p in deep],
        "loss after merging": [float(f"{p['reduced loss']:.4g}") for p in deep],
        "gradient before and after": [
            [float(f"{p[k]:.2g}") for k in ("gradient", "reduced gradient")] for p in deep
        ],
        "largest gradient after merging": max((p["reduced gradient"] for p in deep), default="never"),
        "end, shallow and deep": [
            [float(f"{one['end']:.3g}") for one in trials if one["hidden"] == h] for h in (1, 3)
        ],
    }


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """Networks of one and of three hidden layers; 2,000 to 12,000 full-batch steps unless given."""
    torch.set_num_threads(1)
    del images
    numbers = range(seeds or SEEDS)
    folder = Path(out) / "depth_plateaus"
    cells = Cells(folder / f"cells-{epochs or 0:g}.jsonl")
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for name, setting in SETTINGS.items():
        pages = {hidden: folder / f"{name.replace(', ', '-')}-{hidden}.html" for hidden in (1, 3)}
        trials = cells.all(
            {
                f"{name}: {hidden}, {seed}": partial(
                    trial, setting, hidden, seed, epochs, data, None if seed else page, device
                )
                for seed in numbers
                for hidden, page in pages.items()
            }
        )
        rows.append(row(name, trials))
        for one in trials[:2]:
            ticks = list(range(1, len(one["losses"]) + 1))
            curves.append({"name": f"{one['hidden']} hidden", "panel": name, "x": ticks, "y": one["losses"]})
    close = [row["setting"] for row in rows if row["apart"] != "never" and row["apart"] < 0.05]
    other = [row["setting"] for row in rows if row["setting"] not in close]
    return {
        "title": "Plateaus at shared losses, and linear layers there",
        "source": f"{SOURCE}, Figures 1, 3, 4, 10, 11",
        "finding": f"deep and shallow networks stall within 5 % of the same losses on {listed(close)}; "
        f"not, or without a "
        f"plateau in one of the two, on {listed(other)}",
        "scale": f"{f'{epochs:g}' if epochs else '2,000 to 12,000'} full-batch steps, width 50",
        "seeds": list(numbers),
        "machine": machine(),
        "columns": list(rows[0]),
        "rows": rows,
        "curves": curves,
        "x_label": "part of the training, in fortieths",
        "y_label": "training loss",
        "notes": [
            "Data, deviations and rates are ours: the paper's curve is not published, and its own rates "
            "need 100,000 "
            "steps. Those of the first three settings were chosen after looks at several; the other four "
            "are the "
            "first that were tried.",
            "One `tl.fit` call logs loss and linearity of every layer; its page, loss above linearity, is "
            "written to "
            "the folder depth_plateaus beside this file.",
        ],
    }


def listed(names: list[str]) -> str:
    """Names in a row."""
    return "; ".join(names) or "none"
