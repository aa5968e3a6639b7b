"""Random transformers: most ways in which heads, features and residual streams are written down."""

import dataclasses
import random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclasses.dataclass(frozen=True)
class TransformerDraw:
    """What was drawn."""

    width: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    layers: int
    norm: str
    first: bool
    attention: str
    mlp: str
    rotary: bool
    head_norm: bool
    bias: bool
    source: str
    ends: str
    tied: bool


def drawn(seed: int) -> TransformerDraw:
    """A plan from a seed."""
    dice = random.Random(seed)
    heads, size = dice.choice([2, 4]), dice.choice([4, 6])
    attention = dice.choice(["separate", "separate", "chunked", "unflattened", "torch", "encoder"])
    square = attention in ("torch", "encoder")
    source = dice.choice(["tokens", "features"])
    return TransformerDraw(
        width=heads * size if square or dice.random() < 0.5 else dice.choice([12, 16]),
        heads=heads,
        kv_heads=dice.choice([heads, heads // 2]) if attention == "separate" else heads,
        head_size=size,
        inner=dice.choice([12, 20]),
        layers=dice.choice([1, 2]),
        norm=dice.choice(["layer", "rms", "own rms"]),
        first=dice.random() < 0.6,
        attention=attention,
        mlp=dice.choice(["plain", "gated", "halves"]),
        rotary=dice.random() < 0.5,
        head_norm=dice.random() < 0.3,
        bias=dice.random() < 0.6,
        source=source,
        ends=dice.choice(["mean", "first", "all"]),
        tied=source == "tokens" and dice.random() < 0.4,
    )


class RMS(nn.Module):
    """x / √(mean x² + ε) · w, as models outside torch write it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(width)), 1e-5

    def forward(self, x: Tensor) -> Tensor:
        """The norm."""
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def random_norm(plan: TransformerDraw, width: int) -> nn.Module:
    """A norm of the plan's kind."""
    kinds: dict[str, Any] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm, "own rms": RMS}
    return kinds[plan.norm](width)


def with_rotary(x: Tensor) -> Tensor:
    """Rotary positions on (batch, heads, places, features)."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2], device=x.device)[:, None] / 10.0 ** torch.arange(half, device=x.device)
    cos, sin = (torch.cat([f(angle)] * 2, -1).to(x) for f in (torch.cos, torch.sin))
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class RandomAttention(nn.Module):
    """Attention in one of the usual spellings."""

    def __init__(self, plan: TransformerDraw) -> None:
        super().__init__()
        self.style, self.rotary = plan.attention, plan.rotary
        self.num_heads, self.head_dim = plan.heads, plan.head_size
        self.groups = plan.heads // plan.kv_heads
        inner, narrow = plan.heads * plan.head_size, plan.kv_heads * plan.head_size
        self.all_head_size = inner
        if plan.attention == "separate":
            self.q = nn.Linear(plan.width, inner, plan.bias)
            self.k, self.v = (nn.Linear(plan.width, narrow, plan.bias) for _ in range(2))
        else:
            self.qkv = nn.Linear(plan.width, 3 * inner, plan.bias)
        self.out = nn.Linear(inner, plan.width, plan.bias)
        self.norm = RMS(plan.head_size) if plan.head_norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Causal or not is one to the channels: not."""
        q, k, v = self.heads_of(x)
        q, k = self.norm(q), self.norm(k)
        if self.rotary:
            q, k = with_rotary(q), with_rotary(k)
        if self.groups > 1:
            k, v = (t.repeat_interleave(self.groups, 1) for t in (k, v))
        if self.style == "chunked":
            weights = torch.softmax(q @ k.transpose(-1, -2) / self.head_dim**0.5, -1)
            y = weights @ v
        else:
            y = functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))

    def heads_of(self, x: Tensor) -> list[Tensor]:
        """q, k, v as (batch, heads, places, features)."""
        n, length = x.shape[:2]
        if self.style == "separate":
            projections = [layer(x).view(n, length, -1, self.head_dim) for layer in (self.q, self.k, self.v)]
        elif self.style == "chunked":
            split = self.qkv(x).split(self.all_head_size, 2)
            projections = [projection.view(n, length, self.num_heads, self.head_dim) for projection in split]
        else:
            packed = self.qkv(x).view(n, length, 3, self.num_heads, self.head_dim)
            projections = list(packed.unbind(2))
        return [projection.transpose(1, 2) for projection in projections]


class SelfAttention(nn.Module):
    """torch's own attention on one input."""

    def __init__(self, plan: TransformerDraw) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(plan.width, plan.heads, bias=plan.bias, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Its output."""
        return self.attention(x, x, x)[0]


class RandomMLP(nn.Module):
    """Plain, gated, or gated in halves."""

    def __init__(self, plan: TransformerDraw) -> None:
        super().__init__()
        self.kind = plan.mlp
        self.up = nn.Linear(plan.width, plan.inner * (1 + (plan.mlp == "halves")), plan.bias)
        self.gate = nn.Linear(plan.width, plan.inner, plan.bias) if plan.mlp == "gated" else None
        self.down = nn.Linear(plan.inner, plan.width, plan.bias)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        if self.gate is not None:
            return self.down(functional.silu(self.gate(x)) * self.up(x))
        if self.kind == "halves":
            a, b = self.up(x).chunk(2, -1)
            return self.down(a * functional.gelu(b))
        return self.down(functional.gelu(self.up(x)))


class RandomBlock(nn.Module):
    """Attention and MLP on a residual stream, norms first or last."""

    def __init__(self, plan: TransformerDraw) -> None:
        super().__init__()
        self.first = plan.first
        self.attention = SelfAttention(plan) if plan.attention == "torch" else RandomAttention(plan)
        self.mlp = RandomMLP(plan)
        self.norm1, self.norm2 = random_norm(plan, plan.width), random_norm(plan, plan.width)

    def forward(self, x: Tensor) -> Tensor:
        """The stream after the block."""
        if self.first:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.mlp(x))


class RandomTransformer(nn.Module):
    """A transformer drawn from a seed; see :func:`random_transformer`."""

    def __init__(self, plan: TransformerDraw) -> None:
        super().__init__()
        self.plan_ends = plan.ends
        features = plan.source == "features"
        self.embed = nn.Linear(5, plan.width) if features else nn.Embedding(17, plan.width)
        self.position = None if plan.rotary else nn.Parameter(0.3 * torch.randn(1, 16, plan.width))
        self.token = nn.Parameter(torch.randn(1, 1, plan.width)) if plan.ends == "first" else None
        self.blocks = nn.Sequential(*(block_of(plan) for _ in range(plan.layers)))
        self.norm = random_norm(plan, plan.width)
        self.head = nn.Linear(plan.width, 17 if plan.tied else 3, bias=not plan.tied)
        if plan.tied and isinstance(self.embed, nn.Embedding):
            self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        """Class scores, of all places or of one."""
        x = self.embed(x)
        if self.token is not None:
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        if self.position is not None:
            x = x + self.position[:, : x.shape[1]]
        x = self.norm(self.blocks(x))
        if self.plan_ends == "mean":
            x = x.mean(1)
        elif self.plan_ends == "first":
            x = x[:, 0]
        return self.head(x)


def block_of(plan: TransformerDraw) -> nn.Module:
    """A block of one's own, or torch's."""
    if plan.attention == "encoder":
        return nn.TransformerEncoderLayer(
            plan.width, plan.heads, plan.inner, batch_first=True, norm_first=plan.first, bias=plan.bias
        )
    return RandomBlock(plan)


def random_transformer(seed: int) -> tuple[nn.Module, Tensor]:
    """A transformer in evaluation mode, and an input."""
    plan = drawn(seed)
    torch.manual_seed(seed)
    model = RandomTransformer(plan).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    x = torch.randn(2, 7, 5) if plan.source == "features" else torch.randint(17, (2, 7))
    return model, x
