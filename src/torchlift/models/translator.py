"""Translation of short sentences."""

from typing import Any

import torch
from torch import Tensor, nn

PAD, START, END, UNKNOWN = range(4)
"""The first numbers of a vocabulary."""


class Translator(nn.Module):
    """Encoder and decoder with attention (Vaswani et al. 2017), norms first, the head tied to the embedding.

    Takes source and target side by side, ``length`` tokens of the source first, and gives scores of every
    token's successor in the target.
    """

    def __init__(
        self, sources: int, targets: int, length: int, width: int = 256, depth: int = 6, heads: int = 4
    ) -> None:
        super().__init__()
        self.length = length
        self.source, self.target = nn.Embedding(sources, width), nn.Embedding(targets, width)
        self.positions = nn.Embedding(length, width)
        options: Any = {"dropout": 0.1, "batch_first": True, "norm_first": True}
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, **options)
        encoder = nn.TransformerEncoder(layer, depth, nn.LayerNorm(width), enable_nested_tensor=False)
        self.body = nn.Transformer(width, heads, 0, depth, 4 * width, custom_encoder=encoder, **options)
        self.head = nn.Linear(width, targets)
        for table in (self.source, self.target, self.positions):
            nn.init.normal_(table.weight, std=width**-0.5)
        self.head.weight = self.target.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores, batch × time × target words."""
        source, target = tokens[:, : self.length], tokens[:, self.length :]
        positions = self.positions(torch.arange(self.length, device=tokens.device))
        empty, later = source == PAD, torch.ones(2 * (target.shape[1],), device=tokens.device).triu(1).bool()
        mixed = self.body(
            self.source(source) + positions, self.target(target) + positions[: target.shape[1]],
            tgt_mask=later, src_key_padding_mask=empty, memory_key_padding_mask=empty,
        )  # fmt: skip
        return self.head(mixed)

    @torch.no_grad()
    def translated(self, source: Tensor) -> Tensor:
        """The likeliest next word, one after another."""
        words = torch.full((len(source), 1), START, device=source.device)
        for _ in range(self.length - 1):
            words = torch.cat([words, self(torch.cat([source, words], 1))[:, -1:].argmax(-1)], 1)
        return words
