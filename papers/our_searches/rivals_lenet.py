"""LeNet-5 on 10,000 images with crops and flips against the strongest optimizers, tuned, at two prices."""

from pathlib import Path

from papers.common.arms import Row
from papers.common.first_samples import first_samples
from papers.common.protocol import few, share_of
from papers.common.rivals import Contest, entry, grid
from papers.neural_lifting import lenet
from torchlift import Arm
from torchlift.data import crop_flip
from torchlift.lifts import Average, Normalize, Standardize

EPOCHS, SEEDS, TUNING, SAMPLES, HELD_OUT = 3, 6, (100, 101), 10_000, 4_000


def rivals() -> dict[str, Arm]:
    """Eleven trials without a lift, one of them with averaging."""
    return {
        **grid("SGD", (0.03,), weight_decay=(5e-4,)),
        **grid("AdamW", (3e-3, 6e-3)),
        **grid("Muon", (8e-3, 1.2e-2, 1.6e-2, 2e-2)),
        **grid("Muon", (1.2e-2,), weight_decay=(0.1,)),
        **grid("Muon", (1.6e-2,), "averaged", Average()),
        **grid("SOAP", (4e-3, 8e-3), largest=(512,)),
    }


def lifts() -> dict[str, Arm]:
    """Ten trials of ours."""
    centered, folded, whitened = Standardize(), Normalize("trunk*"), Standardize(scaled="whitened")
    return {
        **grid("SGD", (0.1,), "folded norm", folded, weight_decay=(5e-4,)),
        **grid("Muon", (1.2e-2, 1.6e-2, 2e-2), "centered", centered),
        **grid("Muon", (1.6e-2,), "centered", centered, weight_decay=(0.1,)),
        **grid("Muon", (1.2e-2,), "whitened", whitened),
        **grid("Muon", (1.6e-2,), "folded norm", folded),
        **grid("Muon", (1.2e-2,), "folded norm of linear layers", Normalize("trunk.fc*")),
        **grid("SOAP", (8e-3,), "centered", centered, largest=(512,)),
        **grid("AdamW", (6e-3,), "centered", centered),
    }


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> Row:
    """Trials on two seeds, the table on six others; 3 epochs unless given."""
    length = epochs or EPOCHS
    settings: Row = {"schedule": "cosine", "augment": crop_flip}
    setting = Contest(
        "LeNet-5",
        lenet.model,
        few(first_samples("cifar10", SAMPLES, HELD_OUT, None, data), images),
        length,
        settings,
        accuracy=True,
        share=share_of(length, EPOCHS, images or SAMPLES, SAMPLES),
    )
    return entry(
        out, setting, rivals(), lifts(), TUNING, range(seeds or SEEDS),
        "LeNet-5 on 10,000 images of CIFAR-10: lifts against tuned Muon and SOAP",
        f"{length:g} epochs of plain AdamW, crops and flips; test accuracy on {HELD_OUT:,} images",
    )  # fmt: skip
