"""Layers that a shrunken model may need: torch's own cannot be told what they must still remember."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class CountedLayerNorm(nn.Module):
    """Layer norm of ``count`` features of which only some are left; the others are zero, and still averaged.

    μ = Σx / D,  σ² = Σ(x − μ)² / D over all D features,  y = (x − μ) / √(σ² + ε) · w + b: torch's own kernel
    on the features with their zeros behind them, or, faster, on the d = f D that are left.
    """

    def __init__(
        self,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        count: int,
        channels_first: bool = False,
    ) -> None:
        super().__init__()
        self.weight = None if weight is None else nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)
        self.eps, self.count, self.channels_first = eps, count, channels_first

    @classmethod
    def of(cls, norm: nn.LayerNorm, count: int) -> "CountedLayerNorm":
        """The same norm, remembering its count; Hugging Face's may be of maps with their channels first."""
        first = getattr(norm, "data_format", "") == "channels_first"
        counted = cls(None, None, norm.eps, count, first)
        counted.weight, counted.bias = norm.weight, norm.bias
        return counted.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        """The norm over the last dimension, or the second."""
        x = x.movedim(1, -1) if self.channels_first else x
        if torch.is_grad_enabled() or x.dtype.itemsize < 4:  # exporters trace this, too
            left, gone = x.shape[-1], (0, self.count - x.shape[-1])
            weight, bias = (None if p is None else functional.pad(p, gone) for p in (self.weight, self.bias))
            y = functional.layer_norm(functional.pad(x, gone), (self.count,), weight, bias, self.eps)
            y = y.narrow(-1, 0, left).contiguous()
        else:  # torch's kernel gives its statistics, but no gradients of them
            y = self.from_statistics(x, self.weight, self.bias)
        return y.movedim(-1, 1) if self.channels_first else y

    def from_statistics(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """The norm over the last dimension, from that of the features that are left and its mean m and 1/s:

        with u = m / s, (x − m) / s + (1 − f) u = (x − μ) / s,  and √(σ² + ε) = s √(f + f (1 − f) u²) for an ε
        of ε / f.
        """
        left = x.shape[-1]
        f = left / self.count
        y, mean, inverse = torch.native_layer_norm(x, (left,), weight, bias, self.eps / f)
        u = mean * inverse
        scale = torch.rsub(u * u, f, alpha=f * (f - 1)).rsqrt()
        y = torch.add(y, u, alpha=1 - f) if weight is None else torch.addcmul(y, u, weight, value=1 - f)
        y = y * scale if bias is None else torch.lerp(bias, y, scale)
        return y if y.dtype == x.dtype else y.to(x.dtype)

    def extra_repr(self) -> str:
        """Sizes."""
        kept = "" if self.weight is None else f"{len(self.weight)} of "
        return f"{kept}{self.count}, eps={self.eps}"


class CountedGroupNorm(nn.Module):
    """Group norm in one group of ``count`` channels of which only some are left; the others are zero, and
    still averaged."""

    def __init__(self, weight: Tensor | None, bias: Tensor | None, eps: float, count: int) -> None:
        super().__init__()
        self.weight = None if weight is None else nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)
        self.eps, self.count = eps, count

    @classmethod
    def of(cls, norm: nn.GroupNorm, count: int) -> "CountedGroupNorm":
        """The same norm, remembering its count."""
        counted = cls(None, None, norm.eps, count)
        counted.weight, counted.bias = norm.weight, norm.bias
        return counted.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        """The norm over channels and places."""
        whole = functional.pad(x, (0, 0) * (x.ndim - 2) + (0, self.count - x.shape[1]))
        y = functional.group_norm(whole, 1, eps=self.eps).narrow(1, 0, x.shape[1])
        shape = -1, *(1,) * (x.ndim - 2)
        weight, bias = (None if p is None else p.reshape(shape) for p in (self.weight, self.bias))
        return scale_and_shift(y, weight, bias)

    def extra_repr(self) -> str:
        """Sizes."""
        kept = "" if self.weight is None else f"{len(self.weight)} of "
        return f"{kept}{self.count}, eps={self.eps}"


class CountedResponseNorm(nn.Module):
    """Global response norm of ``count`` channels of which only some are left; the others are zero, and still
    averaged (Woo et al. 2023).

    g_c = ‖x_c‖ over the places of a map,  y = x + w · x · g / (Σ g / D + ε) + b; channels are last.
    """

    def __init__(self, weight: Tensor, bias: Tensor, count: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)
        self.count, self.eps = count, eps

    @classmethod
    def of(cls, norm: nn.Module, count: int) -> "CountedResponseNorm":
        """The same norm, remembering its count."""
        weight, bias = norm.get_parameter("weight"), norm.get_parameter("bias")
        counted = cls(weight.detach(), bias.detach(), count)
        counted.weight, counted.bias = weight, bias
        return counted.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        """The norm of maps (samples, height, width, channels)."""
        size = torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True)
        share = size / (size.sum(-1, keepdim=True) / self.count + self.eps)
        return self.weight * (x * share) + self.bias + x


def scale_and_shift(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """y · w + b."""
    if weight is not None and bias is not None:
        return torch.addcmul(bias, y, weight)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


class FewerHeads(nn.Module):
    """``nn.MultiheadAttention`` whose heads together are narrower than what they read and write.

    softmax(q kᵀ / √d) v for each head of ``head_dim`` features; parameters are named as torch names them.
    """

    _qkv_same_embed_dim = False  # torch's encoder layers ask, and then call forward instead of a fused kernel

    def __init__(self, old: nn.MultiheadAttention, head_dim: int) -> None:
        super().__init__()
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias"):
            self.register_parameter(name, getattr(old, name))
        self.out_proj = old.out_proj
        self.head_dim, self.dropout, self.batch_first = head_dim, old.dropout, old.batch_first
        self.train(old.training)

    @property
    def num_heads(self) -> int:
        """How many heads are left."""
        return self.out_proj.weight.shape[1] // self.head_dim

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As of torch's module; ``is_causal`` is a hint that the mask already says."""
        del is_causal
        if not self.batch_first and query.ndim == 3:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = (self.heads(x) for x in self.projected(query, key, value))
        scores = q @ k.transpose(-1, -2) * self.head_dim**-0.5
        mask = merged_mask(attn_mask, key_padding_mask, scores)
        weights = torch.softmax(scores if mask is None else scores + mask, -1)
        weights = functional.dropout(weights, self.dropout, self.training)
        out = functional.linear(
            (weights @ v).transpose(-2, -3).flatten(-2), self.out_proj.weight, self.out_proj.bias
        )
        if not self.batch_first and query.ndim == 3:
            out = out.transpose(0, 1)
        if not need_weights:
            return out, None
        return out, weights.mean(-3) if average_attn_weights else weights

    def projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """q, k, v of all heads."""
        bias: Any = self.in_proj_bias
        biases = [None] * 3 if bias is None else bias.chunk(3)
        packed: Any = self.in_proj_weight
        weights: Any = (
            packed.chunk(3)
            if packed is not None
            else (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        )
        projections = zip((query, key, value), weights, biases, strict=True)
        return [functional.linear(x, w, b) for x, w, b in projections]

    def heads(self, x: Tensor) -> Tensor:
        """(…, places, heads · features) → (…, heads, places, features)."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(-2, -3)


def merged_mask(attn_mask: Tensor | None, padding: Tensor | None, scores: Tensor) -> Tensor | None:
    """Both masks as one to add: −∞ where a Boolean one is True."""
    total: Tensor | None = None
    for mask, is_padding in ((attn_mask, False), (padding, True)):
        if mask is None:
            continue
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=scores.dtype).masked_fill_(mask, -torch.inf)
        if is_padding:
            mask = mask[..., None, None, :]
        elif mask.ndim == 3:
            mask = mask.reshape(len(scores), -1, *mask.shape[1:])
        total = mask if total is None else total + mask
    return total
