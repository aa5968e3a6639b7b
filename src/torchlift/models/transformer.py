"""A small decoder-only transformer."""

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention


class Attention(nn.Module):
    """softmax(q kᵀ / √d + causal mask) v for each head, then a linear map."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"Attention width {width} is not a multiple of heads {heads}")
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Each position's mixture of itself and those before it, batch × time × width."""
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class DecoderBlock(nn.Module):
    """x ↦ y + mlp(norm₂ y), y = x + attention(norm₁ x)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, of the input's shape."""
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.down(gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    """Token plus position embedding, pre-norm decoder blocks, norm, head; GPT-2's layout, small.

    Radford et al., 2019. Weights start at N(0, 0.02²), those that write to the residual stream at that
    over √(2 depth). With ``tie`` the head shares the token embedding.
    """

    def __init__(
        self,
        vocabulary: int,
        context: int = 128,
        width: int = 128,
        depth: int = 4,
        heads: int = 4,
        dropout: float = 0.0,
        tie: bool = True,
    ) -> None:
        super().__init__()
        self.context = context
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(DecoderBlock(width, heads, dropout) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        start_small(self, depth)
        if tie:
            self.head.weight = self.token.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores, batch × time × vocabulary, of integer tokens, batch × time ≤ context."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.token(tokens) + self.position(positions))
        return self.head(self.norm(self.blocks(x)))


def start_small(model: nn.Module, depth: int) -> None:
    """GPT-2's initialization."""
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear | nn.Embedding):
            residual = name.endswith((".out", ".down"))
            nn.init.normal_(layer.weight, std=0.02 / (2 * depth) ** 0.5 if residual else 0.02)
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):
            nn.init.zeros_(parameter)
