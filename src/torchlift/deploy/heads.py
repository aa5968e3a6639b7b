"""Attention heads as couplings: query, key and value rows with the output columns they end in."""

import torch
from torch import nn

from torchlift.deploy.couplings import Coupling, Member

PROJECTIONS = (("q_proj", "k_proj", "v_proj", ("o_proj", "out_proj")),)


def attention_heads(model: nn.Module) -> list[Coupling]:
    """One coupling per attention layer with separate projections and a ``head_dim``.

    softmax(q kᵀ) v of a head is constant where its value rows are zero, whatever query and key are.
    Layers that fuse the projections are left alone.
    """
    return [
        Coupling(name, layer.v_proj.out_features // layer.head_dim, members(name, layer))
        for name, layer in model.named_modules()
        if splits(layer)
    ]
