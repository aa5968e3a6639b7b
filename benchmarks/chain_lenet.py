"""Pruned, then quantised: LeNet-5 on CIFAR-10, crops and flips, against the dense model of the same budget.

python benchmarks/chain_lenet.py --tune --work runs/chain_lenet      # trials, judged on validation data
python benchmarks/chain_lenet.py --work runs/chain_lenet             # every seed, with the settings below

Sizes are those of packed files on disk, loaded again before they are tested; ratios are to the float32
weights and to the dense model's own packed file. Both arms have the optimiser and rate that are best for the
dense model. Every arm is a durable run: started again, the script goes
on where it stopped. Both write into benchmarks/results/chain_lenet.json (``--out``).
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
from torchlift.models import LeNet5
from torchlift.recipes import Chain, ContinuousSparsification, Smol

TUNING_SEED = 100
FLOAT_BYTES = 4 * 70_346

OPTIMIZERS: dict[str, Any] = {
    f"{name} {rate:g}": partial(kind, lr=rate, **options)
    for name, kind, options, rates in (
        ("SGD", torch.optim.SGD, {"momentum": 0.9, "weight_decay": 5e-4}, (2.5e-2, 5e-2, 0.1)),
        ("AdamW", torch.optim.AdamW, {"weight_decay": 0.0}, (2e-3, 3e-3, 5e-3)),
    )
    for rate in rates
}
DENSE = "AdamW 0.003"
"""What is best for the dense model trains both arms."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """Settings of the chain; the budget's parts are prune, then noise, then fine-tuning on the grid."""

    where: str = "*fc1*weight"
    sparsity: float = 0.94
    ramp: float = 0.3
    prune: float = 0.8
    finetune: float = 0.6
    p_init: float = 5.0
    granularity: str = "tensor"
    restart: bool = False
    bytes: float = 9250.0

    def recipe(self) -> Chain:
        """Zeros first, then bits until the file has the asked size."""
        parts = {
            "prune": ContinuousSparsification(
                sparsity=self.sparsity, where=self.where, ramp=self.ramp, finetune=0.0
            ),
            "bits": Smol(
                bytes=self.bytes,
                where="*",
                finetune=self.finetune,
                p_init=self.p_init,
                granularity=self.granularity,  # pyright: ignore[reportArgumentType]
            ),
        }
        return Chain(parts, shares={"prune": self.prune, "bits": 1 - self.prune}, restart=self.restart)


CHOSEN = Choice()
TRIED = (
    CHOSEN,
    Choice(granularity="weight"),
    Choice(ramp=0.75),
    Choice(sparsity=0.91, p_init=3.5),
    Choice(sparsity=0.96, p_init=6.0),
    Choice(where="*fc*weight", sparsity=0.9),
    Choice(restart=True),
)


def run(
    name: str, recipe: Any, seed: int, data: Splits, options: argparse.Namespace, optimizer: str = DENSE
) -> dict[str, Any]:
    """One arm: trained, packed, loaded, tested."""
    torch.manual_seed(seed)
    result = tl.fit(
        LeNet5(init="xavier"),
        data.train,
        data.valid,
        recipe=recipe,
        epochs=options.epochs,
        seed=seed,
        optimizer=OPTIMIZERS[optimizer],
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
    """Ratios and points per seed that has both arms, and their means."""
    by = {(row["arm"], row["seed"]): row for row in rows}
    seeds = [seed for arm, seed in by if arm == "chain" and ("dense", seed) in by]
    if not seeds:
        return {}
    sizes = [by["chain", s]["file_bytes"] for s in seeds]
    lost = [100 * (by["dense", s]["accuracy"] - by["chain", s]["accuracy"]) for s in seeds]
    packed = [by["dense", s]["file_bytes"] / size for s, size in zip(seeds, sizes, strict=True)]
    return {
        "seeds": seeds,
        "ratio_to_float32": [round(FLOAT_BYTES / size, 2) for size in sizes],
        "ratio_to_packed_dense": [round(r, 2) for r in packed],
        "points_lost": [round(p, 2) for p in lost],
        "mean_ratio": round(statistics.fmean(FLOAT_BYTES / size for size in sizes), 2),
        "mean_points_lost": round(statistics.fmean(lost), 2),
    }


def tune(data: Splits, options: argparse.Namespace) -> None:
    """Every optimiser for the dense model, every choice for the chain, on a seed that is not reported."""
    scale = f"{options.epochs:g} epochs of {len(data.train[0])} images"
    arms: list[tuple[Any, str, Any, str]] = [
        ({"dense": way}, f"dense {way}".replace(" ", "-"), None, way) for way in OPTIMIZERS
    ]
    for choice in TRIED:
        said = dataclasses.asdict(choice)
        name = "-".join(f"{key}={value}" for key, value in said.items()).replace("*", "")
        arms.append((said, name, choice.recipe(), DENSE))
    rows: list[dict[str, Any]] = []
    for said, name, recipe, way in arms:
        found = run(name, recipe, TUNING_SEED, data, options, way)
        rows.append({"choice": said} | {k: v for k, v in found.items() if k not in ("arm", "accuracy")})
        print(json.dumps(rows[-1]), flush=True)
        write(options.out, {"tuning": {"scale": scale, "trials": rows}})


def final(data: Splits, options: argparse.Namespace) -> None:
    """Both arms on every seed."""
    rows: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for name, recipe in (("dense", None), ("chain", CHOSEN.recipe())):
            rows.append(run(name, recipe, seed, data, options))
            print(json.dumps(rows[-1]), flush=True)
            found = {
                "what": "LeNet-5, CIFAR-10, crops, flips: pruned and quantised against dense",
                "scale": f"{options.epochs:g} epochs of {len(data.train[0])} images an arm, one thread",
                "complete": len(rows) == 2 * options.seeds,
                "chosen": dataclasses.asdict(CHOSEN),
                "optimizer": DENSE,
                "torch": torch.__version__,
            }
            write(options.out, {**found, **summary(rows), "rows": rows})


def write(path: Path, found: dict[str, Any]) -> None:
    """Renew a part of the record."""
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | found, indent=1) + "\n")


def main() -> None:
    """Trials, or the arms."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tune", action="store_true")
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
