"""One row per lift and chain worth having, and the models they are tried on."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.core import Lift, LiftChain, Task, chain
from torchlift.lifts import (
    ActivationPrecision,
    Auxiliary,
    Average,
    BitPlanes,
    CodeLength,
    CriticalLayer,
    DoReFa,
    Expand,
    LearnedStep,
    Lifter,
    Normalize,
    Precision,
    Rotate,
    Slim,
    SoftMask,
    SoftThreshold,
    Split,
    Standardize,
    Templates,
    Whitened,
)

Batch = Any


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][:, -1])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(4, 8)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x)
        h = self.norm(h + self.attend(h, h, h, need_weights=False)[0])
        return self.head(h.mean(1))


class Tied(nn.Module):
    """A tiny language model whose output layer is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 8)
        self.mix = nn.Linear(8, 8)
        self.head = nn.Linear(8, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.mix(self.embed(x))))


def mlp() -> tuple[nn.Module, Batch]:
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))
    return model, (torch.randn(8, 5), torch.arange(8) % 3)


def conv() -> tuple[nn.Module, Batch]:
    layers = [nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.Tanh(), nn.Conv2d(6, 4, 3, 2)]
    model = nn.Sequential(*layers, nn.Tanh(), nn.Flatten(), nn.Linear(4 * 9, 3))
    return model, (torch.randn(8, 3, 8, 8), torch.arange(8) % 3)


def recurrent() -> tuple[nn.Module, Batch]:
    return Recurrent(), (torch.randn(8, 5, 4), torch.arange(8) % 3)


def attention() -> tuple[nn.Module, Batch]:
    return Attention(), (torch.randn(8, 5, 4), torch.arange(8) % 3)


def tied() -> tuple[nn.Module, Batch]:
    x = torch.randint(0, 7, (8, 5))
    return Tied(), (x, x.roll(1, 1))


def vit() -> tuple[nn.Module, Batch]:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        image_size=8,
        patch_size=4,
        num_labels=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return ViTForImageClassification(config), (torch.randn(8, 3, 8, 8), torch.arange(8) % 3)


def mobilenet() -> tuple[nn.Module, Batch]:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    config = MobileNetV2Config(
        image_size=32, depth_multiplier=0.25, num_labels=3, classifier_dropout_prob=0.0
    )
    return MobileNetV2ForImageClassification(config), (torch.randn(4, 3, 32, 32), torch.arange(4) % 3)


MODELS: dict[str, Callable[[], tuple[nn.Module, Batch]]] = {
    "mlp": mlp,
    "conv": conv,
    "lstm": recurrent,
    "attention": attention,
    "tied": tied,
    "vit": vit,
    "mobilenet": mobilenet,
}

SMALL = [name for name in MODELS if name not in ("vit", "mobilenet")]
"""Every law runs on these; ``test_any_model.py`` tries all lifts on models of others."""

LIFTS: dict[str, dict[str, Lift]] = {
    "mask": dict.fromkeys((*SMALL, "vit"), SoftMask(variant="published", strength=1e-3)),
    "mask, a target": dict.fromkeys(("mlp", "conv", "tied"), SoftMask(sparsity=0.5, strength=1e-3)),
    "mask, channels": dict.fromkeys(
        ("mlp", "conv"), SoftMask(granularity="channel", s_init=0.1, strength=1e-3)
    ),
    "slim": dict.fromkeys(("mlp", "conv"), Slim(sparsity=0.5)),
    "soft threshold": dict.fromkeys(("mlp", "conv"), SoftThreshold(s_init=-6.0)),
    "expand": dict.fromkeys(SMALL, Expand(rank=0.5)),
    "lifter": {
        "mlp": Lifter("2", width=4),
        "conv": Lifter("3", kind="conv", width=4),
        "lstm": Lifter("rnn", width=4, index=0),
        "attention": Lifter("attend", width=4, index=0, features=8),
        "tied": Lifter("mix", width=4),
        "vit": Lifter("vit.layernorm", width=4),
        "mobilenet": Lifter("mobilenet_v2.conv_1x1.convolution", kind="mlp", width=4),
    },
    "linear lifter": {
        "mlp": Lifter("2", kind="linear", width=4),
        "tied": Lifter("mix", kind="linear", width=4),
    },
    "fading lifter": {
        "mlp": Lifter("2", kind="fading", width=4),
        "tied": Lifter("mix", kind="fading", width=4),
    },
    "normalize": {"mlp": Normalize(), "tied": Normalize("mix")},
    "whitened": {"conv": Whitened(damping=1e-2)},
    "standardize": {"mlp": Standardize(x=torch.ones(8, 5)), "conv": Standardize("3", torch.ones(8, 3, 8, 8))},
    "rotate": dict.fromkeys(SMALL, Rotate(largest=40)),
    "average": dict.fromkeys(("mlp", "lstm", "attention", "tied"), Average()),
    "split": dict.fromkeys(("mlp", "conv", "lstm", "tied"), Split("*", 2)),
    "expand + mask": dict.fromkeys(
        ("mlp", "conv", "lstm", "tied", "vit"),
        chain(Expand(rank=0.5), SoftMask(where="nodes.*.weight", variant="published", strength=1e-3)),
    ),
    "lifter + mask": {
        "mlp": chain(Lifter("2", width=4), SoftMask(variant="published")),
        "vit": chain(Lifter("vit.layernorm", width=4), SoftMask(where="*fc*weight", variant="published")),
    },
    "precision": dict.fromkeys(SMALL, Precision(strength=1e-3)),
    "precision, channels": dict.fromkeys(
        ("mlp", "conv"), Precision(granularity="channel", p_init=4, rounding="round", strength=1e-3)
    ),
    "precision, blocks": dict.fromkeys(
        ("mlp", "conv"), Precision(granularity="block", size=4, levels=(1, 2, 4, 8), strength=1e-3)
    ),
    "precision, activations": dict.fromkeys(
        ("mlp", "conv"), Precision(granularity="tensor", zero=False, activations=True, strength=1e-3)
    ),
    "activation precision": dict.fromkeys(("mlp", "conv"), ActivationPrecision(strength=1e-3)),
    "dorefa": dict.fromkeys(("mlp", "conv", "lstm", "tied"), DoReFa(bits=3)),
    "learned step": dict.fromkeys(("mlp", "conv", "lstm", "tied"), LearnedStep(bits=3)),
    "code length": dict.fromkeys(("mlp", "conv", "lstm", "tied"), CodeLength(bits=3, strength=1e-4)),
    "bit planes": dict.fromkeys(("mlp", "conv", "lstm", "tied"), BitPlanes(bits=4)),
    "expand + precision": dict.fromkeys(
        ("mlp", "conv"), chain(Expand(rank=0.5), Precision(where="nodes.*", strength=1e-3))
    ),
    "critical layer": {
        "mlp": CriticalLayer("2", activation=nn.ELU()),
        "conv": CriticalLayer("3", activation=nn.LeakyReLU()),
        "tied": CriticalLayer("mix", activation=nn.ReLU()),
        "vit": CriticalLayer("*fc1"),
        "attention": CriticalLayer("enter", activation=nn.ReLU(), width=10),
    },
    "critical layer, residual": {"mlp": CriticalLayer("[024]", residual=True, activation=nn.ELU())},
    "critical layer, fading": {"mlp": CriticalLayer("2", tolerance=1e-2, fade=True)},
    "critical layer, twice + mask": {
        "mlp": chain(
            CriticalLayer("2", activation=nn.ELU()),
            CriticalLayer("2.outer", activation=nn.ELU(), seed=1),
            SoftMask(where="*2*weight", variant="published", strength=1e-3),
        )
    },
}


def auxiliary(x: Tensor) -> dict[str, Lift]:
    """Lifts of the objective need the inputs when they are made."""
    layer = "2" if x.ndim == 2 else "3"
    return {
        "auxiliary": Auxiliary(x),
        "auxiliary + mask": chain(Auxiliary(x), SoftMask(where="model.*weight", variant="published")),
        "auxiliary + lifter": chain(Auxiliary(x), Lifter(layer, width=4)),
    }


def build(model_name: str) -> tuple[Task, Batch]:
    """The task of a model with fixed random weights, and a batch for it."""
    torch.manual_seed(0)
    model, batch = MODELS[model_name]()
    return Task(model, "cross_entropy"), batch


def rows() -> list[tuple[str, str]]:
    """All (lift, model) pairs of the table."""
    pairs = [(lift, model) for lift, by_model in LIFTS.items() for model in by_model]
    return pairs + [(lift, model) for lift in auxiliary(torch.zeros(1)) for model in ("mlp", "conv")]


def case(lift_name: str, model_name: str) -> tuple[Lift, Task, Batch]:
    """A row, made fresh."""
    task, batch = build(model_name)
    if lift_name.startswith("auxiliary"):
        batch = (*batch, torch.arange(len(batch[0])))
        return auxiliary(batch[0])[lift_name], task, batch
    return with_data(copy.deepcopy(LIFTS[lift_name][model_name]), batch), task, batch


def with_data(lift: Lift, batch: Batch) -> Lift:
    """Lifts that look at data get the batch."""
    if isinstance(lift, Rotate | Whitened):
        return dataclasses.replace(lift, batches=(batch,))
    if isinstance(lift, CriticalLayer):
        return dataclasses.replace(lift, x=batch[0])
    return chain(*(with_data(inner, batch) for inner in lift.lifts)) if isinstance(lift, LiftChain) else lift


class Stages(nn.Module):
    """Blocks of equal convolutions, as in the stages of a residual network."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.blocks = nn.Sequential(
            *(nn.Sequential(conv3(4), nn.BatchNorm2d(4), nn.Tanh()) for _ in range(4))
        )
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def conv3(width: int) -> nn.Conv2d:
    return nn.Conv2d(width, width, 3, padding=1, bias=False)


class DeepTied(Tied):
    """Three equal layers between an embedding and the output layer tied to it; two of the three are one."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
        self.mix[3].weight = self.mix[1].weight


def stages() -> tuple[nn.Module, Batch]:
    return Stages(), (torch.randn(8, 3, 6, 6), torch.arange(8) % 3)


def deep_tied() -> tuple[nn.Module, Batch]:
    x = torch.randint(0, 7, (8, 5))
    return DeepTied(), (x, x.roll(1, 1))


MODELS |= {"stages": stages, "deep tied": deep_tied}

LIFTS |= {
    "templates": dict.fromkeys(("stages", "vit", "deep tied"), Templates(k=None, recurrence=1e-3)),
    "templates, few": dict.fromkeys(("stages", "vit", "deep tied"), Templates(k=2)),
    "templates, folded": dict.fromkeys(("stages", "vit", "deep tied"), Templates(k=1, fold=1.0)),
    "templates, stored": dict.fromkeys(("stages", "vit", "deep tied"), Templates(k=2, store="templates")),
    "templates + mask": {
        "stages": chain(Templates(k=None), SoftMask(where="*templates", variant="published")),
    },
}
