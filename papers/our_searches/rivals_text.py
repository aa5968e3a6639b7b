"""A small transformer on Penn Treebank characters against the strongest optimizers, tuned, at two prices."""

from functools import partial
from pathlib import Path

from papers.common.arms import Row
from papers.common.first_samples import first_samples
from papers.common.protocol import few, share_of
from papers.common.rivals import Contest, entry, grid
from papers.our_searches.search_text import VOCABULARY, warm_cosine
from torchlift import Arm
from torchlift.lifts import Average, Split, Standardize
from torchlift.models import GPT
from torchlift.recipes import Rotated

EPOCHS, SEEDS, TUNING, WINDOWS, HELD_OUT, LENGTH, HEADS = 2, 6, (100, 101), 4000, 400, 64, 4
BETAS = ((0.9, 0.95), (0.9, 0.99))


def rivals() -> dict[str, Arm]:
    """Fifteen trials without a lift, one of them with averaging."""
    return {
        **grid("SGD", (0.3,)),
        **grid("AdamW", (3e-3, 6e-3), betas=BETAS[:1]),
        **grid("AdamW", (1.2e-2,), betas=BETAS),
        **grid("Muon", (1.2e-2, 2.4e-2, 3.4e-2, 4.8e-2)),
        **grid("Muon", (2.4e-2,), weight_decay=(0.1,)),
        **grid("Muon", (3.4e-2,), "averaged", Average()),
        **grid("SOAP", (6e-3, 1.2e-2, 2.4e-2, 4.8e-2)),
    }


def lifts() -> dict[str, Arm]:
    """Ten trials of ours."""
    by_head, by_use = Split(parts=3 * HEADS), Split(parts=3)
    return {
        **grid("Muon", (1.7e-2, 2.4e-2, 3.4e-2), "in parts by head", by_head),
        **grid("Muon", (2.4e-2,), "in parts by use", by_use),
        **grid("SOAP", (1.2e-2,), "in parts by head", by_head),
        **grid("Muon", (2.4e-2,), "centered", Standardize()),
        **grid("Muon", (2.4e-2,), "whitened", Standardize(scaled="whitened")),
        **grid("Muon", (2.4e-2,), "rotated table", Rotated("token.weight")),
        **grid("AdamW", (2.4e-2,), "rotated", Rotated(), betas=BETAS[:1]),
        **grid("AdamW", (2.4e-2,), "centered and rotated", Rotated(centered=True), betas=BETAS[:1]),
    }


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> Row:
    """Trials on two seeds, the table on six others; 2 epochs unless given."""
    length = epochs or EPOCHS
    settings: Row = {"schedule": warm_cosine, "clip": 1.0, "batch_size": 32}
    model = partial(GPT, VOCABULARY, context=LENGTH, width=64, depth=2, heads=HEADS)
    setting = Contest(
        "text",
        model,
        few(first_samples("ptb-char", WINDOWS, HELD_OUT, LENGTH, data), images),
        length,
        settings,
        share=share_of(length, EPOCHS, images or WINDOWS, WINDOWS),
    )
    return entry(
        out, setting, rivals(), lifts(), TUNING, range(seeds or SEEDS),
        "A transformer on characters: lifts against tuned Muon and SOAP",
        f"{length:g} epochs of plain AdamW, {WINDOWS:,} windows of {LENGTH} characters; nats per character",
    )  # fmt: skip
