"""Accuracy against bytes from 8 bits to half a bit a weight, one coder for all.

    OMP_NUM_THREADS=1 TORCHLIFT_DATA=DATA python benchmarks/low_bits.py --work DIR

writes ``results/low_bits.json`` and its picture. DATA holds ``cifar10``. RateDistortion and Smol beside
gradual magnitude pruning with learned steps (GMP + LSQ). A ResNet and a MobileNetV2-like network are
trained on 6,400 images of 16 × 16 pixels; from there every arm has half as many epochs more, at the same
rate, and a limit of bytes: what the file holds beside the weights (norms, biases, the module tree) and so
many bits for each weight. GMP + LSQ is tried with one to three sorts of levels for every size, on
validation images of a seed outside the table; the others are as they come. Each file is the run's
``model.tl``, norms and biases in float32.
"""

import argparse
import copy
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
from compress_networks import MAKERS
from compress_networks import images as all_images
from pictures import draw
from torchlift.core import Dial, Fit, Problem, Stored, Task, WeightLift
from torchlift.data import crop_flip
from torchlift.deploy import measuring
from torchlift.journal import Journal
from torchlift.methods.baselines.learned_step import Stepped
from torchlift.methods.recipe import Recipe
from torchlift.targets import solve_for_target

HERE = Path(__file__).parent
NETWORKS = ("ResNet", "MobileNetV2-like")
TRIED = {
    0.5: ("2 by layer", "4 by layer", "4"),
    1.0: ("2 by layer", "4 by layer", "2"),
    2.0: ("2 by layer", "3"),
    4.0: ("4", "5"),
    8.0: ("8",),
}
"""Bits per weight, and what GMP + LSQ tries there: bits of its levels; zeros in equal parts of large layers,
or those of all weights that are nearest to zero."""
SMALL = 0.01
"""Of all weights: layers with less keep theirs where zeros go by layer, such as depthwise kernels."""
IMAGES, VALID, TRAINED, EPOCHS, TUNING = 6400, 1600, 8.0, 4.0, 100
AIM = 0.99
"""Of its limit: the size at the rival's last cut, so that little or nothing is cut after training."""
OURS, RIVAL = ("rate and distortion", "Smol"), "GMP + LSQ, levels of "

Cell = dict[str, Any]
Splits = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], tuple[Tensor, Tensor]]


class PrunedStep(Stepped):
    """A learned step under a mask that others turn."""

    kept: Tensor

    def __init__(self, weight: Tensor, bits: int) -> None:
        super().__init__(weight, bits)
        self.register_buffer("kept", torch.ones_like(weight, dtype=torch.bool))

    def forward(self) -> Tensor:
        """The quantized weight, where it is kept."""
        return super().forward() * self.kept

    def stored(self) -> Stored:
        """Levels, 0 where it is not kept."""
        record = super().stored()
        assert record.levels is not None
        return Stored(record.levels * self.kept, record.step)


class Cubic(Dial):
    """Zeros: S (1 − (1 − t/0.6)³) of all weights, the smallest, fifty times a fit (Zhu and Gupta 2017).

    S is solved for once more at the last cut, with the steps that were learned until then.
    """

    cell: Tensor

    def __init__(self, cut: Callable[[float], None], solve: Callable[[], float]) -> None:
        sparsity = solve()
        super().__init__(sparsity, sparsity, "linear")
        self.cut, self.solve = cut, solve
        self.register_buffer("cell", torch.tensor(-1))

    @property
    def moves(self) -> bool:
        """The problem is itself only at the end."""
        return True

    def turn(self, t: float) -> None:
        """Cut what is due."""
        cell = int(50 * min(t, 0.6))
        if cell != int(self.cell):
            self.cell.fill_(cell)
            if cell == 30:
                self.value.fill_(self.solve())
            self.cut(float(self.value) * (1 - (1 - min(1.0, t / 0.6)) ** 3))


@torch.no_grad()
def prune(nodes: list[PrunedStep], sparsity: float, by_layer: bool) -> None:
    """Keep all but the smallest weights, of every large layer or of all."""
    total = sum(node.weight.numel() for node in nodes)
    large = [node for node in nodes if node.weight.numel() >= SMALL * total]
    for group in [[node] for node in large] if by_layer else [nodes]:
        prune_alike(group, sparsity)


def prune_alike(nodes: list[PrunedStep], sparsity: float) -> None:
    """Keep all but the smallest weights, by one threshold."""
    sizes = torch.cat([node.weight.abs().flatten() for node in nodes])
    count = int(sparsity * len(sizes))
    least = sizes.kthvalue(count).values if count else sizes.new_tensor(-1.0)
    for node in nodes:
        node.kept.copy_(node.weight.abs() > least)


@dataclasses.dataclass(frozen=True)
class PrunedSteps(WeightLift):
    """Learned steps on weights that are pruned gradually."""

    where: str = "*weight"
    bits: int = 4
    preserving = False

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, PrunedStep]:
        """One each."""
        return {name: PrunedStep(weight, self.bits) for name, weight in weights.items()}


@dataclasses.dataclass(frozen=True)
class GmpLsq(Recipe):
    """Gradual magnitude pruning while steps are learned, as sparse as the file must be."""

    bytes: int
    bits: int
    by_layer: bool = False

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Choose the sparsity on the network as it is, train, cut what is still too much."""
        lift = PrunedSteps(bits=self.bits)
        lifted = lift.lift(task)
        nodes = [node for node in lifted.modules() if isinstance(node, PrunedStep)]
        cut = partial(prune, nodes, by_layer=self.by_layer)
        cubic = Cubic(cut, partial(self.sparsity, lifted, lift, nodes, AIM * self.bytes))
        nodes[0].add_module("cubic", cubic)
        fit(lifted, name="steps", keep="last", preview=lift.project)
        if file_size(lift.project(lifted)) > self.bytes:
            self.sparsity(lifted, lift, nodes, self.bytes, float(cubic.value))
        small = lift.project(lifted)
        assert isinstance(small, Task)
        return small

    def sparsity(
        self, lifted: Problem, lift: PrunedSteps, nodes: list[PrunedStep], limit: float, low: float = 0.0
    ) -> float:
        """The least whose file is not too large; the masks are left there."""

        def measure(sparsity: float) -> float:
            prune(nodes, sparsity, self.by_layer)
            return float(file_size(lift.project(lifted)))

        if measure(low) <= limit:
            return low
        at = solve_for_target(measure, limit, low, 0.999, steps=14, at_most=True).at
        measure(at)
        return at


def file_size(problem: Problem) -> int:
    """Bytes of the task's network in a file."""
    assert isinstance(problem, Task)
    return measuring.file_size(problem.model)


def splits(data: Path | None, seed: int) -> Splits:
    """Images to train on, to choose by, and to report on."""
    (x, y), test = all_images("ResNet", data)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    train, valid = order[:IMAGES], order[IMAGES : IMAGES + VALID]
    return (x[train], y[train]), (x[valid], y[valid]), test


def training(seed: int, epochs: float) -> dict[str, Any]:
    """The settings of every run."""
    return {
        "optimizer": partial(torch.optim.AdamW, lr=3e-3, weight_decay=0.01), "schedule": "cosine",
        "batch_size": 64, "augment": partial(crop_flip, padding=1), "epochs": epochs, "seed": seed,
        "keep": "last", "resume": True, "progress": False,
    }  # fmt: skip


def trained(network: str, seed: int, data: Splits, epochs: float, work: Path) -> nn.Module:
    """The float network that all arms start from."""
    torch.manual_seed(seed)
    out = work / f"{network}-{seed}"
    return tl.fit(MAKERS[network](), *data[:2], **training(seed, epochs), out=out).model


def limit(model: nn.Module, bits: float) -> int:
    """Bytes of a file with so many bits for each weight of a matrix or kernel."""
    blank = copy.deepcopy(model)
    weights = [p for p in blank.parameters() if p.ndim > 1]
    for p in weights:
        p.data.zero_()
    return measuring.file_size(blank) + round(bits * sum(p.numel() for p in weights) / 8)


def arm(label: str, size: int, bits: float) -> Recipe:
    """An arm at a size; that of the rival ends in the bits of its levels."""
    if label == OURS[0]:
        return tl.recipes.RateDistortion(bytes=size, pretrain=0.0)
    if label == OURS[1]:
        return tl.recipes.Smol(bytes=size, granularity="channel", p_init=min(8, bits + 2))
    levels = label.removeprefix(RIVAL)
    return GmpLsq(size, int(levels.split()[0]), levels.endswith("by layer"))


def cell(network: str, seed: int, bits: float, label: str, args: argparse.Namespace) -> dict[str, Any]:
    """One run: file, and accuracy on validation and test images."""
    data = splits(args.data, seed)
    model = trained(network, seed, data, args.trained, args.work)
    size = limit(model, bits)
    out = args.work / f"{network}-{seed}-{bits:g}-{label.replace(' ', '_')}"
    settings = training(seed, args.epochs)
    result = tl.fit(model, *data[:2], test=data[2], recipe=arm(label, size, bits), out=out, **settings)
    return {
        "limit": size, "bytes": (out / "model.tl").stat().st_size,
        "valid": result.scores["valid"].metric, "test": result.scores["test"].metric,
    }  # fmt: skip


def rows(
    network: str, bits: float, ours: list[str], seeds: int, run: Callable[[str, int, float, str], Cell]
) -> list[Cell]:
    """All arms at a size, the rival's number of bits chosen by validation on the tuning seed."""
    rivals = [RIVAL + levels for levels in TRIED[bits]]
    chosen = max(rivals, key=lambda label: run(network, TUNING, bits, label)["valid"])
    table: list[Cell] = []
    for label in (*ours, chosen):
        cells = [run(network, seed, bits, label) for seed in range(seeds)]
        table.append({
            "network": network, "bits": bits, "arm": label, "limit": cells[0]["limit"],
            "bytes": [cell["bytes"] for cell in cells],
            "test": [round(100 * cell["test"], 2) for cell in cells],
        })  # fmt: skip
    return table


def record(table: list[Cell], args: argparse.Namespace) -> Cell:
    """The table with differences by seed, and its curves."""
    first = {(row["network"], row["bits"]): row for row in table if row["arm"] == args.arms[0]}
    for row in table:
        ours = first[row["network"], row["bits"]]["test"]
        row["ours less this"] = [round(a - b, 2) for a, b in zip(ours, row["test"], strict=True)]
    lines: dict[tuple[str, str], list[Cell]] = {}
    for row in table:
        lines.setdefault((row["network"], row["arm"].partition(",")[0]), []).append(row)
    cells = {(row["network"], row["bits"]) for row in table}
    missing = [f"{name} at {bits:g}" for name in NETWORKS for bits in TRIED if (name, bits) not in cells]
    missing += [f"{arm} anywhere" for arm in OURS if arm not in args.arms]
    return {
        "command": "OMP_NUM_THREADS=1 python benchmarks/low_bits.py",
        "partial": f"without {', '.join(missing)}" if missing else None,
        "torch": torch.__version__, "seeds": args.seeds, "images": IMAGES,
        "epochs": [args.trained, args.epochs],
        "rows": table, "x_label": "bits per weight that the limit allows", "y_label": "test accuracy",
        "curves": [
            {
                "panel": network, "name": arm, "x": [row["bits"] for row in some],
                "y": [statistics.mean(row["test"]) for row in some],
            }
            for (network, arm), some in lines.items()
        ],
    }  # fmt: skip


def main() -> None:
    """Every size of every network, in an order that ends with all of a network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--work", type=Path, default=Path("runs/low-bits"))
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--bits", nargs="*", type=float, default=list(TRIED), choices=list(TRIED))
    parser.add_argument("--arms", nargs="*", default=list(OURS), choices=OURS, help="of ours")
    parser.add_argument("--trained", type=float, default=TRAINED, help="epochs of the float network")
    parser.add_argument("--epochs", type=float, default=EPOCHS, help="of every arm")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "low_bits.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.work.mkdir(parents=True, exist_ok=True)
    journal = Journal(args.work / "cells.jsonl")
    done = {tuple(line["key"]): line["value"] for line in journal.read()}

    def run(*key: Any) -> Cell:
        if key not in done:
            done[key] = cell(*key, args)
            journal.append({"key": key, "value": done[key]})
            print(*key, done[key], flush=True)
        return done[key]

    table: list[Cell] = []
    for network in args.networks:
        for bits in args.bits:
            table += rows(network, bits, args.arms, args.seeds, run)
            args.out.write_text(json.dumps(record(table, args), indent=1) + "\n")
    draw(record(table, args), "low-bits", HERE.parent / "docs" / "images")


if __name__ == "__main__":
    main()
