"""One-shot pruning of a small vision transformer on digits, every method tuned alike (not in the thesis)."""

import dataclasses
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from papers.common.arms import Row
from papers.common.cells import Cells
from papers.savarese_thesis.fair_table import Case, table, with_adam
from papers.savarese_thesis.pruning_runs import Setting, sized
from torchlift.data import load

NAMES = ("dense", "CS", "MP", "GMP", "IMP-C")  # the source's CS is made for SGD: its start decides


class ViT(nn.Module):
    """Patches of 2×2 of an 8×8 image, a learned position each, pre-norm encoder blocks, mean, head."""

    def __init__(self, width: int = 32, depth: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, width, 2, 2)
        self.positions = nn.Parameter(0.02 * torch.randn(1, 16, width))
        self.blocks = nn.Sequential(*(block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores, batch × 10."""
        patches = self.patch(x.unflatten(1, (1, 8, 8))).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(patches + self.positions)).mean(1))


def block(width: int, heads: int) -> nn.Module:
    """Attention and a perceptron of twice the width."""
    return nn.TransformerEncoderLayer(width, heads, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)


def case() -> Case:
    """AdamW at a twentieth of the rates that are named."""
    epochs, width = 30.0, 32
    title = f"ViT of width {width}, AdamW, scikit-learn's digits"
    setting = Setting(title, partial(ViT, width), load("digits"), epochs, {})
    return Case(setting, (0.8,), NAMES, with_adam)


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> Row:
    """Six trials of each method, then three seeds of what was chosen."""
    del data, stand_in
    small = case()
    small = dataclasses.replace(small, setting=sized(small.setting, epochs, images, device))
    cells = Cells(out / "one-shot-vit.jsonl")
    return table("One-shot pruning", "the methods of chapter 4", small, True, seeds or 3, cells)
