"""The teacher–student task against the strongest optimizers: SGD, AdamW, Muon, SOAP, tuned, at two prices."""

from functools import cache, partial
from pathlib import Path

from papers.common.arms import Row
from papers.common.protocol import few, share_of
from papers.common.rivals import Contest, entry, grid
from torchlift import Arm
from torchlift.data import Splits, teacher_student
from torchlift.lifts import Average, Standardize
from torchlift.models import BlockNet
from torchlift.recipes import Rotated

EPOCHS, TEACHERS, TUNING = 75, 30, (100, 101)
BETAS = ((0.9, 0.95), (0.9, 0.99))


def rivals() -> dict[str, Arm]:
    """Fourteen trials without a lift, one of them with averaging."""
    return {
        **grid("SGD", (0.2,)),
        **grid("AdamW", (6e-3, 1.2e-2), betas=BETAS),
        **grid("Muon", (5e-3, 8e-3, 1.2e-2, 1.6e-2)),
        **grid("Muon", (8e-3,), weight_decay=(0.01,)),
        **grid("Muon", (8e-3,), "averaged", Average(), weight_decay=(0.01,)),
        **grid("SOAP", (4e-3, 8e-3, 1.6e-2)),
    }


def lifts() -> dict[str, Arm]:
    """Twelve trials of ours."""
    centered, whitened = Standardize(), Standardize(scaled="whitened")
    return {
        **grid("AdamW", (6e-3, 1.2e-2), "centered", centered, betas=BETAS[:1]),
        **grid("Muon", (8e-3, 1.2e-2, 1.6e-2), "centered", centered),
        **grid("Muon", (1.2e-2,), "centered", centered, weight_decay=(0.01,)),
        **grid("SOAP", (6e-3,), "centered", centered),
        **grid("AdamW", (8e-3,), "whitened", whitened, betas=BETAS[:1]),
        **grid("Muon", (8e-3,), "whitened", whitened),
        **grid("AdamW", (8e-3,), "rotated", Rotated(), betas=BETAS[:1]),
        **grid("AdamW", (6e-3, 1.2e-2), "centered and rotated", Rotated(centered=True), betas=BETAS[:1]),
    }


@cache
def teacher(seed: int) -> Splits:
    """Seven, eight or nine blocks, by the seed."""
    return teacher_student(7 + seed % 3, seed=seed)


def sampled(samples: int | None, seed: int) -> Splits:
    """The teacher of a seed, on so many samples."""
    return few(teacher(seed), samples)


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> Row:
    """Trials on two teachers, the table on ``seeds`` others; 75 epochs unless given."""
    del data
    length = epochs or EPOCHS
    settings: Row = {"loss": "mse", "schedule": "cosine", "keep": "best"}
    setting = Contest(
        "teacher",
        partial(BlockNet, 1),
        partial(sampled, images),
        length,
        settings,
        ratio=True,
        share=share_of(length, EPOCHS, images or 7_000, 7_000),
    )
    return entry(
        out, setting, rivals(), lifts(), TUNING, range(seeds or TEACHERS),
        "Teacher and student: lifts against tuned Muon and SOAP",
        f"{length:g} epochs of plain AdamW, 7,000 samples, teachers of seven, eight and nine blocks in turn",
    )  # fmt: skip
