"""Attention heads as couplings: query, key and value rows with the output columns they end in."""

from typing import Any, cast

import torch
from torch import nn

from torchlift.deploy.couplings import Coupling, Member, Role

PROJECTIONS: dict[str, Role] = {"q_proj": "passes", "k_proj": "passes", "v_proj": "writes", "o_proj": "reads"}


def attention_heads(model: nn.Module) -> list[Coupling]:
    """One coupling per attention layer with projections q, k, v, o of its own and a ``head_dim``.

    softmax(q kᵀ) v of a head is constant where its value rows are zero, whatever query and key are.
    Layers that fuse the projections, or share keys between heads, are left alone.
    """
    return [heads_of(name, layer) for name, layer in model.named_modules() if separate(layer)]


def separate(layer: nn.Module) -> bool:
    """Whether a layer is attention with four linear projections of equal width."""
    children = dict(layer.named_children())
    linear = [children.get(name) for name in PROJECTIONS]
    widths = {part.out_features for part in linear[:3] if isinstance(part, nn.Linear)}
    return (
        all(isinstance(part, nn.Linear) for part in linear)
        and len(widths) == 1
        and isinstance(getattr(layer, "head_dim", None), int)
    )


def heads_of(name: str, layer: nn.Module) -> Coupling:
    """The heads of one attention layer."""
    width, size = layer.get_submodule("v_proj").get_parameter("weight").shape[0], cast(Any, layer).head_dim
    index = torch.arange(width)
    prefix = f"{name}." if name else ""
    members = tuple(
        Member(f"{prefix}{part}", role, index, index // size) for part, role in PROJECTIONS.items()
    )
    return Coupling(name or "attention", width // size, members)


def recount(model: nn.Module) -> None:
    """Tell attention layers how many heads are left."""
    for layer in model.modules():
        if separate(layer) and isinstance(getattr(layer, "num_attention_heads", None), int):
            whole = cast(Any, layer)
            whole.num_attention_heads = whole.v_proj.out_features // whole.head_dim
