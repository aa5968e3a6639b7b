"""Models nobody here had in mind when a method was written, each with a batch; small, with random weights."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from cases import mobilenet, recurrent, vit

Batch = Any


class Mixed(nn.Module):
    """Depthwise and bias-free convolutions, group norm, and a bare parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm = nn.GroupNorm(2, 8)
        self.position = nn.Parameter(0.1 * torch.randn(1, 8, 8, 8))
        self.point = nn.Conv2d(8, 6, 1)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.norm(self.deep(self.enter(x)))) + self.position
        return self.head(torch.relu(self.point(h)).mean((2, 3)))


def labels(n: int) -> Tensor:
    return torch.arange(n) % 3


def mixed() -> tuple[nn.Module, Batch]:
    return Mixed(), (torch.randn(6, 3, 8, 8), labels(6))


def bert() -> tuple[nn.Module, Batch]:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=16,
        num_labels=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    ids = torch.randint(1, 20, (6, 7))
    return BertForSequenceClassification(config), {"input_ids": ids, "labels": labels(6)}


def gpt2() -> tuple[nn.Module, Batch]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=20,
        n_positions=16,
        n_embd=16,
        n_layer=1,
        n_head=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    ids = torch.randint(0, 20, (6, 7))
    return GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids}


ANY: dict[str, Callable[[], tuple[nn.Module, Batch]]] = {
    "mixed": mixed,
    "lstm": recurrent,
    "bert": bert,
    "vit": vit,
    "gpt2": gpt2,
    "mobilenet": mobilenet,
}


def any_model(name: str) -> tuple[nn.Module, Batch]:
    """A model with fixed random weights, and a batch."""
    torch.manual_seed(0)
    return ANY[name]()
