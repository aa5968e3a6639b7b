"""Pooled, pruned, quantized: LeNet-5 on CIFAR-10, crops and flips, against dense models of the same budget.

python benchmarks/chain_lenet.py --tune --work runs/chain_lenet      # trials, judged on validation data
python benchmarks/chain_lenet.py --work runs/chain_lenet             # every seed, with the settings below

Three arms: the dense model; the dense model trained with folded normalization, as the chain is; the chain.
Each has the best of its own trials, as many for one as for another, over two seeds that are not reported; all
of them may use Muon. Sizes are those of packed files on disk, loaded again before they are tested; ratios are
to the float32 weights and to the dense model's own packed file. Every arm is a durable run: started again,
the script goes on where it stopped; ``--arm`` runs some arms only (in another process, say) and leaves the
record, benchmarks/results/chain_lenet.json (``--out``), to a run of all.
"""

import argparse
import dataclasses
import json
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch

import torchlift as tl
from torchlift.data import Splits, crop_flip
from torchlift.lifts import Normalize
from torchlift.models import LeNet5
from torchlift.recipes import Chain, ContinuousSparsification, Inside, Pooled, Smol

TUNING_SEEDS = (100, 101)
FLOAT_BYTES = 4 * 70_346
OPTIMIZERS: dict[str, Any] = {
    "AdamW 0.005": partial(torch.optim.AdamW, lr=5e-3, weight_decay=0.0),
    "Muon 0.005": partial(tl.optim.Muon, lr=5e-3),
    "Muon 0.01": partial(tl.optim.Muon, lr=1e-2),
    "Muon 0.02": partial(tl.optim.Muon, lr=2e-2),
    "Muon 0.005, decay 1": partial(tl.optim.Muon, lr=5e-3, weight_decay=1.0),
    "Muon 0.01, decay 0.3": partial(tl.optim.Muon, lr=1e-2, weight_decay=0.3),
    "Muon 0.01, decay 1": partial(tl.optim.Muon, lr=1e-2, weight_decay=1.0),
}
"""Decay matters as much as the rate: without it normalized weights grow, and their steps turn small."""


@dataclasses.dataclass(frozen=True)
class Dense:
    """A dense model: how it is trained, with folded normalization or without."""

    optimizer: str
    normalized: bool = False

    def recipe(self) -> Normalize | None:
        """Plain training, or normalized."""
        return Normalize() if self.normalized else None


@dataclasses.dataclass(frozen=True)
class Small:
    """Settings of the chain; the budget's parts are pool, prune, then noise, then fine-tuning on the grid."""

    optimizer: str = "Muon 0.01, decay 1"
    pool: float = 0.05
    sparsity: float = 0.3
    prune: float = 0.25
    finetune: float = 0.85
    finetune_rate: float = 1.0
    zeros: str = "moving"
    bytes: float = 9400.0

    def recipe(self) -> Inside:
        """Averages of neighbors, zeros, bits until the file is small; one schedule and one set of norms."""
        stages: dict[str, Any] = {
            "pool": Pooled("*fc1*"),
            "prune": ContinuousSparsification(
                sparsity=self.sparsity, where="*fc1*weight", finetune=0.0, logit_step=1.0
            ),
            "bits": Smol(
                bytes=self.bytes,
                where="*",
                granularity="tensor",
                p_init=4.0,
                logit_rate=0.3,
                finetune=self.finetune,
                finetune_rate=self.finetune_rate,
                zeros=self.zeros,  # pyright: ignore[reportArgumentType]
            ),
        }
        shares = {"pool": self.pool, "prune": self.prune, "bits": 1 - self.pool - self.prune}
        if not self.pool:
            del stages["pool"], shares["pool"]
        return Inside(Normalize(), Chain(stages, shares=shares, restart=False))


Arm = Dense | Small
TRIED: dict[str, tuple[Arm, ...]] = {
    "dense": tuple(Dense(name) for name in OPTIMIZERS),
    "dense, normalized": tuple(Dense(name, True) for name in OPTIMIZERS),
    "chain": (
        Small(),
        Small(prune=0.15, sparsity=0.2),
        Small(prune=0.4, sparsity=0.4),
        Small(finetune=0.92),
        Small(finetune_rate=2.0),
        Small("Muon 0.005, decay 1"),
        Small(pool=0.0, prune=0.45, sparsity=0.62),
    ),
}
"""Seven trials each."""

CHOSEN: dict[str, Arm] = {
    "dense": Dense("Muon 0.01, decay 0.3"),
    "dense, normalized": Dense("Muon 0.01, decay 1", True),
    "chain": Small(prune=0.15, sparsity=0.2),
}
"""The best of each on validation data: ``--tune`` prints it."""


def run(name: str, arm: Arm, seed: int, data: Splits, options: argparse.Namespace) -> dict[str, Any]:
    """One arm: trained, packed, loaded, tested."""
    torch.manual_seed(seed)
    result = tl.fit(
        LeNet5(init="xavier"),
        data.train,
        data.valid,
        recipe=arm.recipe(),
        epochs=options.epochs,
        seed=seed,
        optimizer=OPTIMIZERS[arm.optimizer],
        schedule="cosine",
        augment=crop_flip,
        equal_cost=True,
        batch_size=128,
        progress=False,
        out=options.work / f"{name}-{seed}",
        resume=True,
    )
    path = options.work / f"{name}-{seed}.tl"
    size = tl.deploy.save(result.model, path)
    assert size == path.stat().st_size
    weights = [p for p in result.model.parameters() if p.ndim > 1]
    loaded = tl.deploy.load(path)
    return {
        "arm": name,
        "seed": seed,
        "file_bytes": size,
        "valid": round(accuracy(loaded, data.valid), 4),
        "accuracy": round(accuracy(loaded, data.test), 4),
        "zeros": round(sum(int((w == 0).sum()) for w in weights) / sum(w.numel() for w in weights), 4),
        "values": [int(w.unique().numel()) for w in weights],
        "cost_epochs": round(result.cost, 3),
        "seconds": round(result.seconds),
        "bits": result.history[-1].get("bits"),
    }


@torch.no_grad()
def accuracy(model: torch.nn.Module, data: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Of a loaded model."""
    x, y = data
    right = [
        (model.eval()(a).argmax(1) == b).float() for a, b in zip(x.split(500), y.split(500), strict=True)
    ]
    return float(torch.cat(right).mean())


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Ratios, and points lost against both dense models, per seed that has all arms, and their means."""
    by = {(row["arm"], row["seed"]): row for row in rows}
    seeds = [seed for arm, seed in by if arm == "chain" and all((other, seed) in by for other in CHOSEN)]
    if not seeds:
        return {}
    sizes = [by["chain", s]["file_bytes"] for s in seeds]

    def lost(arm: str) -> dict[str, Any]:
        each = [100 * (by[arm, s]["accuracy"] - by["chain", s]["accuracy"]) for s in seeds]
        return {"each": [round(points, 2) for points in each], "mean": round(statistics.fmean(each), 2)}

    return {
        "seeds": seeds,
        "accuracy": {
            arm: round(statistics.fmean(by[arm, s]["accuracy"] for s in seeds), 4) for arm in CHOSEN
        },
        "ratio_to_float32": [round(FLOAT_BYTES / size, 2) for size in sizes],
        "ratio_to_packed_dense": [
            round(by["dense", s]["file_bytes"] / by["chain", s]["file_bytes"], 2) for s in seeds
        ],
        "points_lost": {arm: lost(arm) for arm in CHOSEN if arm != "chain"},
    }


def tune(data: Splits, options: argparse.Namespace) -> None:
    """Every trial of every arm on the seeds that are not reported; the best by mean accuracy."""
    tried: dict[str, list[dict[str, Any]]] = {}
    for kind in options.arm:
        for arm in TRIED[kind]:
            said = dataclasses.asdict(arm)
            name = "-".join([kind, *(f"{key}={value}" for key, value in said.items())])
            name = name.replace(",", "").replace(" ", "-")
            rows = [run(name, arm, seed, data, options) for seed in TUNING_SEEDS]
            means = {key: round(statistics.fmean(r[key] for r in rows), 4) for key in ("valid", "file_bytes")}
            tried.setdefault(kind, []).append({"settings": said, **means, "each": [r["valid"] for r in rows]})
            print(json.dumps({"arm": kind, **tried[kind][-1]}), flush=True)
            scale = f"{options.epochs:g} epochs of {len(data.train[0])} images, seeds {TUNING_SEEDS}"
            best = {one: max(trials, key=lambda trial: trial["valid"]) for one, trials in tried.items()}
            write(options, {"tuning": {"scale": scale, "best": best, "trials": tried}})


def final(data: Splits, options: argparse.Namespace) -> None:
    """All arms on every seed."""
    rows: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for name in options.arm:
            rows.append(run(name, CHOSEN[name], seed, data, options))
            print(json.dumps(rows[-1]), flush=True)
            header = {
                "what": "LeNet-5, CIFAR-10, crops, flips: pooled, pruned and quantized against dense",
                "scale": f"{options.epochs:g} epochs of {len(data.train[0])} images an arm, one thread",
                "complete": len(rows) == len(CHOSEN) * options.seeds,
                "chosen": {name: dataclasses.asdict(arm) for name, arm in CHOSEN.items()},
                "torch": torch.__version__,
            }
            write(options, {**header, **summary(rows), "rows": rows})


def write(options: argparse.Namespace, section: dict[str, Any]) -> None:
    """Renew a part of the record, if all arms run."""
    path: Path = options.out
    if set(options.arm) != set(CHOSEN):
        return
    record = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(record | section, indent=1) + "\n")


def main() -> None:
    """Trials, or the arms."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--arm", nargs="+", choices=CHOSEN, default=list(CHOSEN))
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int)
    parser.add_argument("--work", type=Path, default=Path("runs/chain_lenet"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/chain_lenet.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.epochs = options.epochs or 12.0
    options.images = options.images or 10_000
    options.work = options.work / f"{options.images}-{options.epochs:g}"
    data = tl.data.load("cifar10")
    (x, y), (u, v), count = data.train, data.valid, options.images
    train, valid = (x[:count], y[:count]), (u[:5000], v[:5000])  # no arm is chosen by the latter in a run
    data = Splits(train, valid, data.test, data.kind)
    options.work.mkdir(parents=True, exist_ok=True)
    (tune if options.tune else final)(data, options)


if __name__ == "__main__":
    main()
