"""Every recipe and lift on odd models: a right model, or a reason in one line before training."""

import copy
import re
import warnings
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import torchlift as tl
from odd_models import ODD, data, is_lazy
from torchlift.core import Lift, nodes
from torchlift.errors import TorchliftError
from torchlift.lifts import (
    ActivationPrecision,
    Auxiliary,
    Average,
    BitPlanes,
    CodeLength,
    CriticalLayer,
    DoReFa,
    Expand,
    HardConcrete,
    LearnedStep,
    Lifter,
    Normalize,
    Pact,
    Precision,
    Rotate,
    Slim,
    SoftMask,
    SoftThreshold,
    Split,
    Standardize,
    StochasticMask,
    Templates,
)
from torchlift.methods import Recipe
from torchlift.recipes import (
    Bsq,
    Chain,
    ChannelPruning,
    ContinuousSparsification,
    Deepened,
    IterativeMagnitude,
    IterativeStochastic,
    LayerPruning,
    Lifted,
    LiftedInit,
    LiftThenTune,
    MagnitudePruning,
    NeuralLifting,
    Plain,
    Pooled,
    Rotated,
    SequentialSparsification,
    Smol,
    SoftSharing,
    TicketSearch,
)

RESHAPING = (LayerPruning, ChannelPruning, Pooled, SoftSharing, ActivationPrecision, Pact)
"""Their models have other tensors than the one that was given."""


def recipes(layer: str) -> dict[str, Recipe | Lift]:
    """One of each, as small as it gets; ``layer`` is the name of a linear layer."""
    return {
        "plain": Plain(),
        "neural lifting": NeuralLifting(layer, width=8),
        "rotated": Rotated(),
        "rotated, centered": Rotated(centered=True),
        "lifted": Lifted(),
        "lifted init": LiftedInit(epochs=1),
        "sparsification": ContinuousSparsification(sparsity=0.6),
        "tickets": TicketSearch(rounds=1, rewind=1, s_init=0.01),
        "magnitude": MagnitudePruning(sparsity=0.6),
        "iterative magnitude": IterativeMagnitude(rounds=1, fraction=0.5),
        "iterative stochastic": IterativeStochastic(rounds=1, s_init=2.0),
        "sequential": SequentialSparsification(rounds=1, fraction=0.5),
        "smol": Smol(bits=3.0),
        "bit planes": Bsq(),
        "sharing": SoftSharing(),
        "layers": LayerPruning(layers=1),
        "deepened": Deepened(layer),
        "channels": ChannelPruning(ratio=0.25),
        "pooled": Pooled(),
        "chain": Chain({"norm": Normalize(), "prune": MagnitudePruning(sparsity=0.4)}),
        "lift, then bits": Chain(Normalize(), Smol(bits=3.0)),
        "lift, then mask": Chain(Normalize(), SoftMask(s_init=0.1)),
        "lift then tune": LiftThenTune(SoftMask(s_init=0.1)),
        "expand": Expand(),
        "normalize": Normalize(),
        "standardize": Standardize(),
        "average": Average(),
        "split": Split("*", 2),
        "rotate": Rotate(largest=40),
        "lifter": Lifter(layer, width=8),
        "linear lifter": Lifter(layer, kind="linear", width=2),
        "mask": SoftMask(s_init=0.1),
        "mask with a target": SoftMask(sparsity=0.6),
        "mask of channels": SoftMask(granularity="channel", s_init=0.1),
        "slim": Slim(sparsity=0.6),
        "soft threshold": SoftThreshold(s_init=-6.0),
        "hard concrete": HardConcrete(),
        "stochastic mask": StochasticMask(),
        "auxiliary": Auxiliary(),
        "precision": Precision(),
        "dorefa": DoReFa(bits=3),
        "learned step": LearnedStep(bits=3),
        "code length": CodeLength(bits=3),
        "planes": BitPlanes(bits=4),
        "activation precision": ActivationPrecision(),
        "pact": Pact(),
        "templates": Templates(k=None),
        "critical layer": CriticalLayer(layer),
    }


MODELS, RECIPES = list(ODD), list(recipes(""))
STRIDE = 19  # has no divisor in common with the number of recipes: every recipe meets several models
SAMPLE = [(m, RECIPES[(STRIDE * i + k) % len(RECIPES)]) for i, m in enumerate(MODELS) for k in (0, 7)]
EVERY = [(model, recipe) for model in MODELS for recipe in RECIPES if (model, recipe) not in SAMPLE]
ONCE_WRONG = [
    *(
        (model, recipe)
        for model in ("frozen", "frozen_layers")
        for recipe in ("normalize", "layers", "channels")
    ),
    *(("old_weight_norm", recipe) for recipe in ("plain", "normalize", "magnitude")),
    *(("Checkpointed", recipe) for recipe in ("expand", "rotated", "smol")),
    *(("ZeroSize", recipe) for recipe in ("normalize", "sparsification", "dorefa", "rotate")),
    *(("LSTMCells", recipe) for recipe in ("sparsification", "magnitude")),
    ("frozen", "rotated, centered"),
    ("frozen", "magnitude"),
    ("Complex", "plain"),
    ("weight_norm", "sparsification"),
    *((model, "lift, then bits") for model in ("old_weight_norm", "weight_norm", "listed_twice", "frozen")),
    ("Checkpointed", "lift, then bits"),
    ("Checkpointed", "lift, then mask"),
    ("MixedDtypes", "sharing"),
    ("MixedDtypes", "channels"),
]


@pytest.mark.parametrize(("model", "recipe"), sorted({*SAMPLE, *ONCE_WRONG}))
def test_delivered_right_or_raises_before_training(model: str, recipe: str) -> None:
    check(model, recipe)


@pytest.mark.fuzz
@pytest.mark.parametrize(("model", "recipe"), EVERY)
def test_every_other_pair(model: str, recipe: str) -> None:
    check(model, recipe)


def check(name: str, recipe: str) -> None:
    torch.manual_seed(0)
    model = ODD[name]()
    method = recipes(first_linear(model))[recipe]
    before, rows = copy_of(name, model), list[Any]()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = tl.fit(
                model,
                data(model),
                data(model, 2, 16),
                recipe=method,
                optimizer=partial(torch.optim.SGD, lr=0.05),
                epochs=3,
                batch_size=16,
                progress=False,
                listener=rows.append,
            )
    except TorchliftError as error:
        check_reason(str(error), trained=bool(rows))
        return
    assert not list(nodes(result.model))
    check_weights(before, result.model)
    if not isinstance(method, RESHAPING):
        check_state(name, result.model)
    if recipe in ("sparsification", "magnitude", "mask with a target", "slim"):
        assert fraction_of_zeros(result.model) >= 0.57


def check_reason(reason: str, trained: bool) -> None:
    assert not trained, f"raises after training: {reason}"
    assert "\n" not in reason
    assert not re.search(r"AttributeError|IndexError|ZeroDivision|NoneType", reason), reason


def copy_of(name: str, model: nn.Module) -> nn.Module:
    """The same model once more: some cannot be copied."""
    torch.manual_seed(0)
    return ODD[name]() if name in ("lazy", "old_weight_norm") else copy.deepcopy(model)


def first_linear(model: nn.Module) -> str:
    names = [n for n, module in model.named_modules() if type(module) is nn.Linear and module.out_features]
    return names[0] if names else "missing"


def check_weights(before: nn.Module, after: nn.Module) -> None:
    """Finite, of their own type, and as they were where they were frozen."""
    now = dict(after.named_parameters())
    for name, weight in before.named_parameters():
        if not weight.requires_grad:
            assert torch.equal(now[name], weight), f"{name} was frozen"
            assert not now[name].requires_grad
        if name in now and not is_lazy(weight):
            assert now[name].dtype == weight.dtype
    assert all(bool(weight.isfinite().all()) for weight in after.parameters())


def check_state(name: str, after: nn.Module) -> None:
    """The weights in a fresh model give the same function: hooks, ties and computed weights are as before."""
    fresh = ODD[name]()
    fresh.load_state_dict(after.state_dict())
    if name == "Counting":  # keeps a buffer that it does not save
        return
    x = data(after, 3, 8)[0]
    torch.testing.assert_close(fresh.eval()(x), after.eval()(x))


def fraction_of_zeros(model: nn.Module) -> float:
    """Of the trainable weights that a glob "*weight" means."""
    actual = [p for n, p in model.named_parameters() if p.ndim > 1 and p.requires_grad and "weight" in n]
    return sum(int((p == 0).sum()) for p in actual) / sum(p.numel() for p in actual)
