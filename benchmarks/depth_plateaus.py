"""Deep and shallow networks stall at the same losses, and where they do, deep layers act linearly.

python benchmarks/depth_plateaus.py --seeds 3 --scale 1 --out benchmarks/results/depth_plateaus.json

Bai et al. (2024), Figures 1, 3 and 4: full-batch gradient descent from small weights, on a curve of one
variable and on Iris. One `tl.fit` call per network logs loss and linearity side by side (and writes the page
of it with --report FOLDER). At the plateau of the deep network its linear layers are merged: a critical point
of the shallow network should come out, so that its gradient is as small, and its loss stalls as well.
"""

import argparse
import dataclasses
import json
import os
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import torchlift as tl
from torchlift.core import Fit, Task
from torchlift.lifts import merging

Pair = tuple[Tensor, Tensor]


class Whole(Dataset[Pair]):
    """All of the data, so many times: an epoch of full-batch steps."""

    def __init__(self, data: Pair, steps: int) -> None:
        self.data, self.steps = data, steps

    def __len__(self) -> int:
        """Steps of an epoch."""
        return self.steps

    def __getitem__(self, index: int) -> Pair:
        """Everything."""
        if index >= self.steps:
            raise IndexError(index)
        return self.data


def steps(n: int = 70) -> Pair:
    """One variable, two steps."""
    x = torch.linspace(-2, 2, n).unsqueeze(1)
    return x, (torch.tanh(6 * (x + 1)) + torch.tanh(6 * (x - 1))) / 2


def sine(n: int = 70) -> Pair:
    """One variable, two waves."""
    x = torch.linspace(-2, 2, n).unsqueeze(1)
    return x, torch.sin(3 * x)


def flowers() -> Pair:
    """Iris with one-hot targets."""
    x, y = tl.data.iris().train
    return x, nn.functional.one_hot(y, 3).float()


@dataclasses.dataclass(frozen=True)
class Setting:
    """A task and how it is trained."""

    data: Any
    activation: type[nn.Module]
    std: tuple[float, float]
    """Of the initial weights of the shallow and of the deep network: both have to start near a constant."""
    lr: float
    steps: int


SETTINGS = {
    "steps, tanh": Setting(steps, nn.Tanh, (0.1, 0.1), 0.05, 12_000),
    "sine, tanh": Setting(sine, nn.Tanh, (0.1, 0.1), 0.05, 6_000),
    "iris, tanh": Setting(flowers, nn.Tanh, (0.003, 0.03), 0.1, 6_000),
}
PER_EPOCH = 100


def network(setting: Setting, hidden: int, seed: int) -> nn.Module:
    """Layers of 50, all parameters from N(0, std²)."""
    x, y = setting.data()
    model = tl.models.MLP(x.shape[1], *[50] * hidden, y.shape[1], activation=setting.activation)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(setting.std[hidden > 1] * torch.randn(parameter.shape, generator=generator))
    return model


def plateaus(losses: list[float], factor: float = 1.3) -> list[tuple[int, float]]:
    """(epoch, loss) in the middle of each stall that ends.

    The loss falls by less than 2 % while the time grows by ``factor``, and later by a fifth or more.
    """
    found: list[tuple[int, float]] = []
    start = 2
    while start < len(losses) * 0.9:
        end = int(start * factor) + 1
        if end < len(losses) and losses[end] > 0.98 * losses[start]:
            while end + 1 < len(losses) and losses[end + 1] > 0.98 * losses[start]:
                end += 1
            middle = (start + end) // 2
            if losses[-1] < 0.8 * losses[middle]:
                found.append((middle, losses[middle]))
            start = end + 1
        else:
            start += 1
    return found


def gradient(model: nn.Module, data: Pair) -> float:
    """The largest entry of the gradient."""
    slopes = torch.autograd.grad(Task(model, "mse")(data), list(model.parameters()))
    return max(float(slope.abs().max()) for slope in slopes)


def run(setting: Setting, hidden: int, seed: int, scale: float, page: Path | None) -> dict[str, Any]:
    """One network: its losses, the linearity of its layers, and what is left of it at its plateau."""
    data = setting.data()
    epochs = int(setting.steps * scale / PER_EPOCH)
    kept: dict[int, Any] = {}

    def recipe(task: Task, fit: Fit) -> Task:
        kept.update(fit(task, name="train", remember=tuple(range(1, epochs + 1))).remembered)
        return task

    model = network(setting, hidden, seed)
    result = tl.fit(
        model,
        DataLoader(Whole(data, PER_EPOCH), batch_size=None),
        recipe=recipe,
        loss="mse",
        optimizer=partial(torch.optim.SGD, lr=setting.lr),
        epochs=epochs,
        seed=seed,
        log=tl.analyze.Depth(data[0], cka=False, zero=0.05 if setting.activation is nn.ReLU else 0.0),
        progress=False,
    )
    if page is not None:
        page.mkdir(parents=True, exist_ok=True)
        result.report(page / f"{hidden}.html")
    losses = [row["train_loss"] for row in result.history]
    stalls = plateaus(losses)
    lines = [[v for k, v in row.items() if k.startswith("linearity ")] for row in result.history]
    found: dict[str, Any] = {
        "hidden": hidden,
        "seed": seed,
        "end": losses[-1],
        "plateaus": [{"epoch": e + 1, "loss": loss, "linearity": lines[e]} for e, loss in stalls],
        "losses": [float(f"{loss:.4g}") for loss in losses[:: max(1, epochs // 40)]],
        "linearity": [[round(v, 4) for v in row] for row in lines[:: max(1, epochs // 40)]],
    }
    for stall in found["plateaus"] if hidden > 1 else []:
        task = Task(model, "mse")
        task.load_state_dict(kept[stall["epoch"]])
        done = merging(task.model, data[0], 0.99)
        stall |= {
            "gradient": gradient(task.model, data),
            "reduced to": done.depth[1],
            "reduced loss": Task(done.model, "mse")(data).item(),
            "reduced gradient": gradient(done.model, data),
            "initial gradient": gradient(network(setting, hidden, seed), data),
        }
    return found


def shared(rows: list[dict[str, Any]]) -> list[float]:
    """Relative distance of each plateau of a deep network to the nearest of the shallow ones."""
    shallow = [p["loss"] for row in rows if row["hidden"] == 1 for p in row["plateaus"]]
    deep = [p["loss"] for row in rows if row["hidden"] > 1 for p in row["plateaus"]]
    return [min(abs(loss - other) / other for other in shallow) for loss in deep] if shallow else []


def main() -> None:
    """Run all settings, depths and seeds; print and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="not needed: Iris comes with scikit-learn")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="1: 6,000 to 12,000 full-batch steps")
    parser.add_argument("--only", help="one setting by name; the others of --out are left as they are")
    parser.add_argument("--report", type=Path, help="a folder for the pages of seed 0")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/depth_plateaus.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    record: dict[str, Any] = {
        "title": "Plateaus at shared losses, and linear layers there: one variable and Iris",
        "scale": f"{given.scale:g} of 12,000 (steps) and 6,000 (sine, Iris) full-batch steps, width 50",
        "seeds": list(range(given.seeds)),
        "command": f"python benchmarks/depth_plateaus.py --seeds {given.seeds} --scale {given.scale:g}",
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "settings": {},
    }
    if given.only and given.out.exists():
        record["settings"] = json.loads(given.out.read_text())["settings"]
    for name, setting in SETTINGS.items():
        if given.only and name != given.only:
            continue
        page = given.report / name.replace(", ", "-") if given.report else None
        rows = [
            run(setting, hidden, seed, given.scale, page if seed == 0 else None)
            for seed in range(given.seeds)
            for hidden in (1, 3)
        ]
        apart = shared(rows)
        record["settings"][name] = {"rows": rows, "plateaus apart": apart}
        for row in rows:
            print(name, row["hidden"], row["seed"], row["end"], row["plateaus"], flush=True)
        if apart:
            print(f"{name}: plateaus of the deep apart from the shallow's by {statistics.median(apart):.3f}")
        given.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
