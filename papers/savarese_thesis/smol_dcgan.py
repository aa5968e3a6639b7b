"""A generator in few bits: DCGAN under SMOL and BSQ (thesis Table 5.4 and Figure 5.5)."""

import base64
import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

import torchlift as tl
from papers.common.arms import Row
from papers.common.cells import Cells
from papers.common.protocol import protocol
from papers.savarese_thesis.precision_runs import Setting, as_record, bits_of, means, sized, weights_of
from papers.savarese_thesis.pruning_runs import first
from torchlift.data import Splits, cifar10, mnist
from torchlift.experiments.arm import Setup
from torchlift.models import Gan, LeNet5
from torchlift.models.dcgan import game
from torchlift.recipes import Bsq, Chain, Plain, Smol
from torchlift.report.pictures import png

PUBLISHED = protocol("savarese_thesis", "Table 5.4")
WHERE = "*generator*weight"
COLUMNS = ("method", "bits", "file bytes", "distance", "score", "thesis")
THESIS = {
    "float, 3/16 of the steps": "FID 38.6 (IS 4.70)", "float": "FID 25.8 (5.67)",
    "BSQ, more bits": "FID 37.1 (4.95) at 3.9", "BSQ, fewer bits": "FID 38.3 (4.85) at 2.8",
    "SMOL*, 0.2": "FID 35.6 (4.75)", "SMOL*, 0.4": "FID 35.6 (4.75) at 0.2",
    "SMOL*, 1": "FID 31.1 (5.01)", "SMOL, 1.7": "FID 34.1 (5.02)",
    "SMOL*, 3.5": "FID 29.9 (5.29)",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Judge:
    """A small classifier instead of Inception, and the features of real test images."""

    net: LeNet5
    mean: Tensor
    spread: Tensor

    @classmethod
    def trained(cls, data: Splits, epochs: float, out: Path, device: str | None = None) -> "Judge":
        """LeNet-5 on the same images."""
        torch.manual_seed(0)
        net = tl.fit(
            LeNet5((data.shape[0], 32, 32), init="xavier"), data.train, epochs=epochs, schedule="cosine",
            optimizer=partial(torch.optim.Adam, lr=2e-3), out=out, resume=True, progress=False,
            device=device or "auto",
        ).model.cpu()  # fmt: skip
        assert isinstance(net, LeNet5)
        return cls(net.eval(), *moments(features(net, data.test[0])))

    def rate(self, images: Tensor) -> dict[str, float]:
        """The distance of the images' features to those of test images, and exp E KL(p(y | x) ‖ p(y))."""
        outputs = features(self.net, images)
        log_p = self.net.head(outputs.float()).detach().double().log_softmax(1)
        marginal = log_p.exp().mean(0).log()
        kl = (log_p.exp() * (log_p - marginal)).sum(1).mean()
        return {"distance": frechet(*moments(outputs), self.mean, self.spread), "score": float(kl.exp())}


@torch.no_grad()
def features(net: LeNet5, images: Tensor) -> Tensor:
    """What the classifier sees, before its last layer."""
    return torch.cat([net.trunk(batch) for batch in images.split(1000)]).double()


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of rows."""
    return x.mean(0), torch.cov(x.T)


def frechet(mean: Tensor, spread: Tensor, mean2: Tensor, spread2: Tensor) -> float:
    """‖μ₁ − μ₂‖² + tr(C₁ + C₂ − 2 (C₁^½ C₂ C₁^½)^½), between normal distributions (Heusel et al. 2017)."""
    values, vectors = torch.linalg.eigh(spread)
    root = vectors * values.clamp_min(0).sqrt() @ vectors.T
    common = torch.linalg.eigvalsh(root @ spread2 @ root).clamp_min(0).sqrt().sum()
    return float((mean - mean2).square().sum() + spread.trace() + spread2.trace() - 2 * common)


def images(read: Any, count: int | None, data: str | None) -> Splits:
    """Images of 32 × 32 in [−1, 1]."""

    def scaled(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        x, y = first(pair, count or len(pair[0]))
        margin = (32 - x.shape[-1]) // 2
        return pad(x.float() / 127.5 - 1, (margin,) * 4, value=-1.0), y

    train, test = read(data)
    return Splits(scaled(train), scaled(test), scaled(test), "classification")


def setting(full: bool, data: str | None) -> Setting:
    """CIFAR-10 for 160 epochs at the source's width and rate, or digits with a narrow pair."""
    width, read, count, epochs = (64, cifar10, None, PUBLISHED.epochs or 160.0) if full else SMALL
    splits, fit = images(read, count, data), PUBLISHED.settings("Adam") | {"loss": game, "progress": False}
    title = "DCGAN, CIFAR-10" if full else f"narrow DCGAN, {count:,} digits of MNIST"
    if not full:
        fit["optimizer"] = partial(torch.optim.Adam, lr=RATE, betas=(0.5, 0.999))
    return Setting(title, partial(Gan, splits.shape[0], width), splits, epochs, fit)


RATE, SMALL = 1e-3, (16, mnist, 6400, 4.0)


def ways(full: bool) -> dict[str, tuple[Any, float]]:
    """Recipes and their part of the steps: 30 of the source's 160 epochs fine-tune, at a tenth of the rate.

    At the small scale, with its few steps, they fine-tune at the whole rate, and BSQ's planes move faster;
    SMOL's fewest bits are 0.4, for at the first weights one bit where a weight is not zero is 0.32 already.
    """
    tail: Row = {"where": WHERE, "finetune_rate": 0.1 if full else 1.0}
    smol = partial(Smol, finetune=30 / 160, **tail)
    bsq = partial(Bsq, finetune=30 / 130, plane_rate=1.0 if full else 20.0, **tail)
    more, fewer = (
        Chain({"float": Plain(), "bits": bsq(strength=s)}, shares={"float": 30, "bits": 130})
        for s in ((2e-3, 4e-3) if full else STRENGTHS)
    )
    recipes = {
        "float": None, "BSQ, more bits": more, "BSQ, fewer bits": fewer,
        **{f"SMOL*, {bits:g}": smol(bits=bits) for bits in (0.2 if full else 0.4, 1.0, 3.5)},
        "SMOL, 1.7": smol(bits=1.7, zero=False),
    }  # fmt: skip
    return {"float, 3/16 of the steps": (None, 3 / 16)} | {name: (way, 1.0) for name, way in recipes.items()}


STRENGTHS = (0.01, 0.03)


def measured(training: Setting, judge: Judge, out: Path, name: str, way: tuple[Any, float], seed: int) -> Row:
    """One durable run: bits and file of the generator, its rating, and for the first seed its samples."""
    recipe, share = way
    home = out / f"{name} {seed}".replace(" ", "_").replace("/", "-")
    setup = Setup(training.make, (training.data.train, None, None), training.fit)
    result = setup.run(training.arm(recipe, share), seed, home, equal_cost=True, resume=True)
    gan = result.model
    assert isinstance(gan, Gan)
    weights, records = weights_of(gan.generator), tl.stored(gan.generator)
    total = sum(weight.numel() for weight in weights.values())
    samples = gan.samples(len(training.data.test[0]))
    return {
        "method": name, "seed": seed,
        "bits": sum(bits_of(w, records.get(n)) * w.numel() for n, w in weights.items()) / total,
        "file bytes": tl.deploy.save(gan.generator, out / f"{home.name}.tl"), **judge.rate(samples),
        "cost": round(result.cost, 3), "seconds": round(result.seconds, 1),
        "png": grid(samples[:40]) if seed == 0 else None,
    }  # fmt: skip


def grid(samples: Tensor, columns: int = 10) -> str:
    """Images in rows, as the page takes them."""
    rows = torch.cat([torch.cat(list(row), 2) for row in samples.split(columns)], 1)
    picture = png(rows, -1.0, 1.0)
    assert picture is not None
    return base64.b64encode(picture).decode()


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> Row:
    """A float generator, and SMOL's and BSQ's at several sizes, by a small classifier's features."""
    full = not stand_in
    training = sized(setting(full, data), epochs, images, device)
    home = out / f"smol-dcgan-{training.epochs:g}-{len(training.data.train[0])}"
    length = training.epochs * (30 / 160 if full else 1.0)
    judge = Judge.trained(training.data, length, home / "judge", device)
    cells = Cells(home / "cells.jsonl")
    rows = cells.all(
        {
            f"{name}, seed {seed}": partial(measured, training, judge, home, name, way, seed)
            for seed in range(seeds or 3)
            for name, way in ways(full).items()
        }
    )
    pictures = [{"name": row["method"], "png": picture} for row in rows if (picture := row.pop("png"))]
    table: list[Row] = [
        row | {"thesis": THESIS.get(row["method"])} for row in means(rows, COLUMNS, "distance")
    ]
    real = judge.rate(training.data.train[0])
    said = "; ".join(
        f"{row['method']}: {row['distance']['mean']:.1f} ± {row['distance']['sd']:.1f} at "
        f"{row['bits']['mean']:.2f} bits"
        for row in table
    )
    return as_record(
        "A generator in few bits", "Table 5.4 and Figure 5.5", training, full, rows,
        finding=f"Distance to real images: {said}; training images themselves: {real['distance']:.1f}.",
        rows=table, columns=list(COLUMNS), images=pictures, y_label="distance",
        notes=[
            "Distance and score are those of FID and Inception Score with LeNet-5, trained here on the same "
            "images, in place of Inception: they cannot be compared with the thesis' numbers.",
            f"Training images score {real['score']:.2f}. * with zero-precision allocation.",
            "Both players step at once (one objective, one optimizer); the source lets them take turns.",
        ],
    )  # fmt: skip
