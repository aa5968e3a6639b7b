"""A small perceptron on 10,000 digits against the strongest optimizers, tuned, at two prices."""

from functools import partial
from pathlib import Path

from papers.common.arms import Row
from papers.common.first_samples import first_samples
from papers.common.protocol import few, share_of
from papers.common.rivals import Contest, entry, grid
from torchlift import Arm
from torchlift.lifts import Average, Normalize, Standardize
from torchlift.models import MLP

EPOCHS, SEEDS, TUNING, SAMPLES, HELD_OUT = 6, 10, (100, 101, 102), 10_000, 4_000
DECAY = (0.0, 0.1)


def rivals() -> dict[str, Arm]:
    """Twenty-four trials without a lift, two with averaging; no best one lies on the edge of its rates."""
    return {
        **grid("SGD", (0.02, 0.05, 0.1, 0.2)),
        **grid("AdamW", (3e-3, 6e-3, 1.2e-2, 2.4e-2), weight_decay=DECAY),
        **grid("Muon", (6e-3, 1.2e-2, 2.4e-2), weight_decay=DECAY),
        **grid("AdamW", (1.2e-2,), "averaged", Average(), weight_decay=(0.1,)),
        **grid("Muon", (1.2e-2,), "averaged", Average(), weight_decay=(0.1,)),
        **grid("SOAP", (3e-3, 6e-3, 1.2e-2, 2.4e-2), largest=(128,)),
    }


def lifts() -> dict[str, Arm]:
    """Twenty-two trials of ours."""
    centered, whitened, folded = Standardize(), Standardize(scaled="whitened"), Normalize()
    return {
        **grid("AdamW", (6e-3, 1.2e-2, 2.4e-2), "centered", centered, weight_decay=DECAY),
        **grid("Muon", (6e-3, 1.2e-2), "centered", centered, weight_decay=DECAY),
        **grid("SOAP", (6e-3,), "centered", centered, largest=(128,)),
        **grid("AdamW", (6e-3,), "whitened", whitened),
        **grid("Muon", (6e-3,), "whitened", whitened),
        **grid("AdamW", (6e-3, 1.2e-2, 2.4e-2), "folded norm", folded, weight_decay=DECAY),
        **grid("Muon", (6e-3, 1.2e-2), "folded norm", folded),
        **grid("SOAP", (6e-3,), "folded norm", folded, largest=(128,)),
    }


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> Row:
    """Trials on three seeds, the table on ten others; 6 epochs unless given."""
    length = epochs or EPOCHS
    setting = Contest(
        "perceptron",
        partial(MLP, 784, 32, 32, 10, flatten=True),
        few(first_samples("mnist", SAMPLES, HELD_OUT, None, data), images),
        length,
        {"schedule": "cosine", "batch_size": 128},
        share=share_of(length, EPOCHS, images or SAMPLES, SAMPLES),
    )
    return entry(
        out, setting, rivals(), lifts(), TUNING, range(seeds or SEEDS),
        "A perceptron of two layers of 32 on MNIST: lifts against tuned Muon and SOAP",
        f"{length:g} epochs of plain AdamW, {SAMPLES:,} images; the score is the cross-entropy on test data",
    )  # fmt: skip
