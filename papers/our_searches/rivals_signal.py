"""A small convolution over one dimension against the strongest optimizers, tuned, at two prices.

Digits are read as signals: 28 steps of 28 channels, a row of the image each.
"""

from pathlib import Path

from torch import nn

from papers.common.arms import Row
from papers.common.first_samples import first_samples
from papers.common.protocol import few, share_of
from papers.common.rivals import Contest, entry, grid
from torchlift import Arm
from torchlift.lifts import Average, Normalize, Standardize

EPOCHS, SEEDS, TUNING, SAMPLES, HELD_OUT = 6, 8, (100, 101), 10_000, 4_000
DECAY = (0.0, 0.1)


class SignalNet(nn.Sequential):
    """Two convolutions over time, each with ReLU and pooling, and a linear layer; no normalization."""

    def __init__(self, channels: int = 16) -> None:
        layers: list[nn.Module] = [nn.Flatten(1, 2), nn.Conv1d(28, channels, 5), nn.ReLU(), nn.MaxPool1d(2)]
        layers += [nn.Conv1d(channels, 2 * channels, 5), nn.ReLU(), nn.MaxPool1d(2)]
        super().__init__(*layers, nn.Flatten(), nn.Linear(8 * channels, 10))


def rivals() -> dict[str, Arm]:
    """Twenty trials without a lift, two of them with averaging."""
    return {
        **grid("SGD", (0.05, 0.1)),
        **grid("AdamW", (6e-3, 1.2e-2, 2.4e-2), weight_decay=DECAY),
        **grid("Muon", (6e-3, 1.2e-2, 2.4e-2), weight_decay=DECAY),
        **grid("AdamW", (4.8e-2,), weight_decay=DECAY[1:]),
        **grid("AdamW", (1.2e-2,), "averaged", Average(), weight_decay=DECAY[1:]),
        **grid("Muon", (1.2e-2,), "averaged", Average(), weight_decay=DECAY[1:]),
        **grid("SOAP", (3e-3, 6e-3, 1.2e-2), largest=(256,)),
    }


def lifts() -> dict[str, Arm]:
    """Seventeen trials of ours."""
    centered, folded = Standardize(), Normalize()
    return {
        **grid("AdamW", (6e-3, 1.2e-2), "centered", centered, weight_decay=DECAY[1:]),
        **grid("Muon", (1.2e-2, 2.4e-2), "centered", centered, weight_decay=DECAY),
        **grid("SOAP", (6e-3,), "centered", centered, largest=(256,)),
        **grid("Muon", (1.2e-2,), "whitened", Standardize(scaled="whitened")),
        **grid("AdamW", (6e-3, 1.2e-2, 2.4e-2, 4.8e-2), "folded norm", folded, weight_decay=DECAY[1:]),
        **grid("Muon", (1.2e-2, 2.4e-2), "folded norm", folded, weight_decay=DECAY),
        **grid("SOAP", (6e-3,), "folded norm", folded, largest=(256,)),
    }


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> Row:
    """Trials on two seeds, the table on eight others; 6 epochs unless given."""
    length = epochs or EPOCHS
    digits = few(first_samples("mnist", SAMPLES, HELD_OUT, None, data), images)
    settings: Row = {"schedule": "cosine", "batch_size": 128}
    setting = Contest(
        "signal", SignalNet, digits, length, settings,
        share=share_of(length, EPOCHS, images or SAMPLES, SAMPLES),
    )  # fmt: skip
    return entry(
        out, setting, rivals(), lifts(), TUNING, range(seeds or SEEDS),
        "Convolutions over 28 steps of 28 channels: lifts against tuned Muon and SOAP",
        f"{length:g} epochs of plain AdamW, {SAMPLES:,} digits read by rows; cross-entropy on test data",
    )  # fmt: skip
