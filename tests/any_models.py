"""Models nobody here had in mind when a method was written, each with a batch; small, with random weights."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Batch = Any


class Mixed(nn.Module):
    """Depthwise and bias-free convolutions, group norm, and a bare parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm = nn.GroupNorm(2, 8)
        self.place = nn.Parameter(0.1 * torch.randn(1, 8, 8, 8))
        self.point = nn.Conv2d(8, 6, 1)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.norm(self.deep(self.enter(x)))) + self.place
        return self.head(torch.relu(self.point(h)).mean((2, 3)))


class Recurrent(nn.Module):
    """An LSTM and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][:, -1])


def labels(n: int) -> Tensor:
    return torch.arange(n) % 3


def mixed() -> tuple[nn.Module, Batch]:
    return Mixed(), (torch.randn(6, 3, 8, 8), labels(6))


def lstm() -> tuple[nn.Module, Batch]:
    return Recurrent(), (torch.randn(6, 5, 4), labels(6))


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


def vit() -> tuple[nn.Module, Batch]:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        image_size=8,
        patch_size=4,
        num_labels=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return ViTForImageClassification(config), (torch.randn(6, 3, 8, 8), labels(6))


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


def mobilenet() -> tuple[nn.Module, Batch]:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    config = MobileNetV2Config(
        image_size=32, depth_multiplier=0.25, num_labels=3, classifier_dropout_prob=0.0
    )
    return MobileNetV2ForImageClassification(config), (torch.randn(4, 3, 32, 32), labels(4))


ANY: dict[str, Callable[[], tuple[nn.Module, Batch]]] = {
    "mixed": mixed,
    "lstm": lstm,
    "bert": bert,
    "vit": vit,
    "gpt2": gpt2,
    "mobilenet": mobilenet,
}


def any_model(name: str) -> tuple[nn.Module, Batch]:
    """A model with fixed random weights, and a batch."""
    torch.manual_seed(0)
    return ANY[name]()
