"""A small LSTM on Penn Treebank characters against the strongest optimizers, tuned, at two prices."""

from functools import partial
from pathlib import Path

from papers.common.arms import Row
from papers.common.first_samples import first_samples
from papers.common.protocol import few, share_of
from papers.common.rivals import Contest, entry, grid
from papers.our_searches.search_text import VOCABULARY, warm_cosine
from torchlift import Arm
from torchlift.lifts import Average, Split
from torchlift.models import CharLSTM
from torchlift.recipes import Rotated

EPOCHS, SEEDS, TUNING, WINDOWS, HELD_OUT, LENGTH, GATES = 4, 6, (100, 101), 2000, 400, 32, 4
BETAS = ((0.9, 0.95),)


def rivals() -> dict[str, Arm]:
    """Fifteen trials without a lift, one of them with averaging."""
    return {
        **grid("SGD", (1.0,)),
        **grid("AdamW", (2.4e-2, 4.8e-2, 9.6e-2), betas=BETAS),
        **grid("Muon", (2.4e-2, 4.8e-2, 9.6e-2)),
        **grid("Muon", (3.4e-2, 4.8e-2, 6.8e-2), weight_decay=(0.1,)),
        **grid("Muon", (4.8e-2,), "averaged", Average(), weight_decay=(0.1,)),
        **grid("SOAP", (2.4e-2, 4.8e-2, 9.6e-2)),
        **grid("SOAP", (4.8e-2,), weight_decay=(0.1,)),
    }


def lifts() -> dict[str, Arm]:
    """Thirteen trials of ours."""
    by_gate, by_gate_in = Split("lstm.weight_*", GATES), Split("lstm.weight_hh*", GATES)
    return {
        **grid("Muon", (4.8e-2,), "in parts by gate", by_gate),
        **grid("Muon", (3.4e-2, 4.8e-2, 6.8e-2), "in parts by gate", by_gate, weight_decay=(0.1,)),
        **grid("Muon", (4.8e-2,), "in parts by gate, recurrent", by_gate_in, weight_decay=(0.1,)),
        **grid("SOAP", (2.4e-2, 4.8e-2, 9.6e-2), "in parts by gate", by_gate),
        **grid("SOAP", (4.8e-2,), "in parts by gate", by_gate, weight_decay=(0.1,)),
        **grid("AdamW", (2.4e-2, 4.8e-2), "rotated", Rotated(), betas=BETAS),
        **grid("Muon", (4.8e-2,), "rotated table", Rotated("embedding.weight"), weight_decay=(0.1,)),
    }


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
) -> Row:
    """Trials on two seeds, the table on six others; 4 epochs unless given."""
    length = epochs or EPOCHS
    settings: Row = {"schedule": warm_cosine, "clip": 1.0, "batch_size": 32}
    model = partial(CharLSTM, VOCABULARY, width=64, layers=1)
    texts = few(first_samples("ptb-char", WINDOWS, HELD_OUT, LENGTH, data), images)
    setting = Contest(
        "LSTM", model, texts, length, settings,
        share=share_of(length, EPOCHS, images or WINDOWS, WINDOWS),
    )  # fmt: skip
    return entry(
        out, setting, rivals(), lifts(), TUNING, range(seeds or SEEDS),
        "An LSTM on characters: lifts against tuned Muon and SOAP",
        f"{length:g} epochs of plain AdamW, {WINDOWS:,} windows of {LENGTH} characters; nats per character",
    )  # fmt: skip
