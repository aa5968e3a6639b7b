"""Shortest paths with the curriculum of the thesis (section 3.4.3, Figures 3.9 and 3.12), at a small scale.

python benchmarks/sharing_shortest_paths.py --json benchmarks/results/sharing_shortest_paths.json [--full]

A plain CNN, the same with soft sharing and a template per layer, with the recurrence regulariser, and with
one template (a recurrent network from the start): the same data, epochs, optimiser (Adam, 0.01, constant) and
batches. After each phase: F1 on held-out grids of the phase, of the network as it is and folded where
coefficients reach 0.9, untrained after the fold. ``--full`` is the thesis' scale: 32×32 grids, 32 channels,
5,000 samples, 50 epochs.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch

import torchlift as tl
from torchlift.models import GridNet

SMALL = {"size": 12, "width": 8, "layers": 16, "samples": 800, "held_out": 400, "epochs": 8, "batch": 32}
FULL = {"size": 32, "width": 32, "layers": 20, "samples": 5000, "held_out": 1000, "epochs": 50, "batch": 64}
ARMS: dict[str, tl.lifts.Templates | None] = {
    "cnn": None,
    "shared": tl.lifts.Templates(k=None),
    "shared, recurrence 0.01": tl.lifts.Templates(k=None, recurrence=0.01),
    "one template": tl.lifts.Templates(k=1),
}
FOLD = 0.9


def train(problem: tl.Problem, data: Any, scale: dict[str, int], optimizer: Any, seed: int) -> None:
    """One phase."""
    x, y = data
    order = torch.Generator().manual_seed(seed)
    problem.train()
    for _ in range(scale["epochs"]):
        for index in torch.randperm(len(x), generator=order).split(scale["batch"]):
            optimizer.zero_grad()
            problem((x[index], y[index])).backward()
            optimizer.step()


@torch.no_grad()
def score(problem: tl.Problem, data: Any) -> float:
    """F1 over all samples."""
    problem.eval()
    return float(tl.data.f1(torch.cat([problem.predict(x) for x in data[0].split(100)]), data[1]))


def folded(lift: tl.lifts.Templates, problem: tl.Problem) -> tuple[tl.Problem, dict[str, Any]]:
    """The network with one stored weight for layers that are alike, and what it saved."""
    way = tl.lifts.Templates(lift.k, recurrence=lift.recurrence, fold=FOLD)
    small, rows = way.project(problem), way.folds(problem)
    model = small.body()
    assert model is not None
    return small, {
        "stored_weights": len({row.stored for row in rows}),
        "parameters": sum(p.numel() for p in model.parameters()),
        "largest_error": max(row.error for row in rows),
    }


def run(arm: str, seed: int, scale: dict[str, int]) -> dict[str, Any]:
    """All phases of one network."""
    phases = tl.data.curriculum(scale["samples"], seed=seed, size=scale["size"])
    held_out = tl.data.curriculum(scale["held_out"], seed=1000 + seed, size=scale["size"])
    torch.manual_seed(seed)
    model = GridNet(scale["layers"], scale["width"])
    tl.models.initialise(model, "kaiming")
    lift = ARMS[arm]
    problem: tl.Problem = tl.Task(model, "bce")
    problem = problem if lift is None else lift.lift(problem)
    optimizer = torch.optim.Adam(tl.groups(problem, {"*": {}}), lr=0.01)
    found: dict[str, Any] = {"arm": arm, "seed": seed, "phases": []}
    for distance, data in phases.items():
        train(problem, data, scale, optimizer, seed)
        row: dict[str, Any] = {"distance": distance, "f1": score(problem, held_out[distance])}
        if lift is not None:
            small, saved = folded(lift, problem)
            likeness = tl.analyze.similarity(problem)["blocks"]
            row |= {"folded_f1": score(small, held_out[distance]), **saved}
            row |= {"mean_similarity": float(likeness.mean())}
            found["similarity"] = [[round(v, 3) for v in line] for line in likeness.tolist()]
        found["phases"].append(row)
    return found


def spread(values: list[float]) -> dict[str, float]:
    """Mean and standard deviation."""
    return {"mean": statistics.mean(values), "sd": statistics.stdev(values) if len(values) > 1 else 0.0}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """F1 by arm and phase over seeds."""
    table: dict[str, Any] = {}
    for arm in ARMS:
        mine = [one["phases"] for one in runs if one["arm"] == arm]
        for key in ("f1", "folded_f1"):
            if mine and key in mine[0][0]:
                name = arm if key == "f1" else f"{arm}, folded"
                table[name] = {
                    str(rows[0]["distance"]): spread([row[key] for row in rows])
                    for rows in zip(*mine, strict=True)
                }
    return table


def main() -> None:
    """Run and write; runs that the file has already are kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/sharing_shortest_paths.json"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--full", action="store_true")
    for name in ("layers", "width", "epochs"):
        parser.add_argument(f"--{name}", type=int)
    args = parser.parse_args()
    torch.set_num_threads(1)
    given = {name: value for name, value in vars(args).items() if name in SMALL and value is not None}
    scale = (FULL if args.full else SMALL) | given
    known: dict[str, Any] = json.loads(args.json.read_text()) if args.json.exists() else {}
    runs: list[dict[str, Any]] = known["runs"] if known.get("scale") == scale else []
    for seed in args.seeds:
        for arm in ARMS:
            if not any((one["arm"], one["seed"]) == (arm, seed) for one in runs):
                runs.append(run(arm, seed, scale))
                print(arm, seed, [round(row["f1"], 3) for row in runs[-1]["phases"]], flush=True)
            write(args.json, scale, runs)


def write(path: Path, scale: dict[str, int], runs: list[dict[str, Any]]) -> None:
    """All runs so far, and their summary."""
    seeds = sorted({one["seed"] for one in runs})
    result = {"scale": scale, "fold": FOLD, "seeds": seeds, "f1": summary(runs), "runs": runs}
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
