"""What the demo delivers: networks before and after, the file to hand on, and the page that shows both."""

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.compress import Compressed, compress
from torchlift.deploy import save
from torchlift.deploy.measuring import latencies
from torchlift.experiments.comparison import Comparison, Paired, in_columns, paired
from torchlift.files import write_file
from torchlift.report import Bars, Card, Cards, Column, Page, Paragraphs, Section, Spread, Table, beside
from torchlift.train.run import Result

INPUTS, BITS, RATIO, POLISH = 256, 4, 0.25, 10
"""How many images ``compress`` sees, without their labels; the bits it leaves of each weight, the share of
channels it cuts, and the epochs in which the rest learns to give what the whole network gave."""
BATCH = 256
NEW_DIGITS = 12


@dataclasses.dataclass(frozen=True)
class DemoNetwork:
    """One network at one size, over all seeds."""

    name: str
    bytes: float
    """Of its packed file, the mean."""
    accuracy: float
    """On test images, the mean."""
    difference: Paired
    """To plain training, seed by seed."""
    milliseconds: float
    """A batch of images, the first seed's network."""

    def cells(self) -> list[str]:
        """A line of the table."""
        d = self.difference
        return [
            self.name,
            f"{self.bytes:,.0f}",
            f"{self.accuracy:.4f}",
            f"{d.mean:+.4f} [{d.low:+.4f}, {d.high:+.4f}]",
            f"{self.milliseconds:.3f}",
        ]


def before_and_after(
    comparison: Comparison, inputs: Tensor, test: tuple[Tensor, Tensor], out: Path
) -> list[DemoNetwork]:
    """Every trained network as it is, and those with float weights compressed without labels."""
    models = {name: [run.model for run in runs] for name, runs in comparison.results.items()}
    for name in ("plain", "folded norm"):
        models[f"{name}, compressed"] = [small(model, inputs).model for model in models[name]]
    reference = [test_accuracy(model, test) for model in models["plain"]]
    times = latencies([group[0] for group in models.values()], test[0][:BATCH])
    rows: list[DemoNetwork] = []
    for (name, group), seconds in zip(models.items(), times, strict=True):
        scores = [test_accuracy(model, test) for model in group]
        gains = [mine - plain for mine, plain in zip(scores, reference, strict=True)]
        size = statistics.fmean(int(save(model, out / "file.tl")) for model in group)
        rows.append(DemoNetwork(name, size, statistics.fmean(scores), paired(gains), 1e3 * seconds))
    (out / "file.tl").unlink()
    return rows


def small(model: nn.Module, inputs: Tensor) -> Compressed:
    """The same network with fewer channels at few bits, from inputs alone."""
    return compress(model.eval(), inputs[:INPUTS], ratio=RATIO, bits=BITS, polish=POLISH, progress=False)


@torch.no_grad()
def test_accuracy(model: nn.Module, test: tuple[Tensor, Tensor]) -> float:
    """The share of test images it names rightly."""
    x, y = test
    return float((model.eval()(x).argmax(1) == y).float().mean())


def deliver_demo(run: Result, inputs: Tensor, test: tuple[Tensor, Tensor], out: Path) -> tuple[Path, Path]:
    """The compressed network with its card, and a file of new images to try it on."""
    import numpy as np

    out.mkdir(parents=True, exist_ok=True)
    model = small(run.model, inputs).model
    card = run.card | {"scores": {"test": test_accuracy(model, test)}}
    save(model, out / "model.tl", card=card)
    images = out / "new_digits.npz"
    np.savez(images, x=test[0][:NEW_DIGITS].numpy())
    return out / "model.tl", images


def demo_table(rows: Sequence[DemoNetwork]) -> str:
    """The networks as a table for a terminal."""
    head = ["network", "bytes of its file", "accuracy (test)", "to plain, 95 % CI", f"ms for {BATCH} images"]
    return "\n".join(in_columns([head, *(row.cells() for row in rows)]))


def draw_demo(rows: Sequence[DemoNetwork], path: Path) -> Path:
    """Plain training beside what is delivered: bytes, time and accuracy, as an SVG file."""
    pair = [rows[0], rows[-1]]
    names = ["plain training, float32", "delivered"]
    figures = [
        Bars(names, {"bytes": [row.bytes for row in pair]}, form="bytes", title="File"),
        Bars(names, {"ms": [row.milliseconds for row in pair]}, form="ms", title=f"{BATCH} images"),
        Bars(names, {"accuracy": [row.accuracy for row in pair]}, form="percent", title="Test accuracy"),
    ]
    return write_file(path, beside(figures, 1080).encode())


def with_deliveries(page: Page, rows: Sequence[DemoNetwork], commands: str) -> Page:
    """The comparison's page, opened by what is delivered."""
    plain, chosen = rows[0], rows[-1]
    cards = Cards(
        [
            Card("file", chosen.bytes, unit="bytes", other=plain.bytes, better="lower"),
            Card("accuracy", chosen.accuracy, other=plain.accuracy, better="higher"),
            Card(f"{BATCH} images", chosen.milliseconds, unit="ms", other=plain.milliseconds, better="lower"),
        ]
    )
    columns = [
        Column("network", align="left"),
        Column("bytes", best="low"),
        Column("accuracy", best="high"),
        Column("to plain"),
        Column(f"ms for {BATCH} images"),
    ]
    cells = [
        (
            row.name,
            row.bytes,
            row.accuracy,
            Spread(row.difference.mean, low=row.difference.low, high=row.difference.high, signed=True),
            row.milliseconds,
        )
        for row in rows
    ]
    bars = Bars([row.name for row in rows], {"bytes of the file": [row.bytes for row in rows]})
    story = (
        f"**{chosen.name}** compared with plain training, means over seeds. The network is trained in "
        f"normalized coordinates at the same cost; with {INPUTS} images and no labels, `tl.compress` cuts "
        f"a quarter of its channels and brings the weights left to {BITS} bits."
    )
    sections = [
        Section("Before and after", [Paragraphs(story), cards, bars, Table(columns, cells)]),
        Section("Use it", [Paragraphs(commands)]),
    ]
    return dataclasses.replace(
        page, title="torchlift on handwritten digits", sections=[*sections, *page.sections]
    )


def as_data(rows: Sequence[DemoNetwork]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [dataclasses.asdict(row) for row in rows]
