"""Every recipe after every other, on a small convolutional net and a small transformer."""

import warnings
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.core import Lift, nodes
from torchlift.errors import TorchliftError
from torchlift.methods import Recipe
from torchlift.recipes import Chain

EPOCHS = 4.0


def conv_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 2),
    )


def transformer() -> nn.Module:
    return tl.models.GPT(8, context=6, width=8, depth=2, heads=2, tie=False)


def images(seed: int, n: int = 48) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
    return x, (x.mean((1, 2, 3)) > 0).long()


def words(seed: int, n: int = 48) -> tuple[Tensor, Tensor]:
    x = torch.randint(8, (n, 6), generator=torch.Generator().manual_seed(seed))
    return x, (x + 1) % 8


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[..., tuple[Tensor, Tensor]], str]] = {
    "conv": (conv_net, images, "3"),
    "transformer": (transformer, words, "blocks.0.up"),
}


def recipes(model: str) -> dict[str, Recipe | Lift]:
    """One of each kind, as small as it gets."""
    r, layer = tl.recipes, MODELS[model][2]
    return {
        "plain": r.Plain(),
        "neural lifting": r.NeuralLifting(layer, width=4, kind="conv" if model == "conv" else "mlp"),
        "linear lifting": tl.lifts.Expand(),
        "folded norm": tl.lifts.Normalize(),
        "centered": tl.lifts.Standardize(),
        "averaged": tl.lifts.Average(),
        "in parts": tl.lifts.Split("*", 2),
        "rotated": r.Rotated(),
        "lifted init": r.LiftedInit(epochs=1),
        "sparsification": r.ContinuousSparsification(sparsity=0.5),
        "tickets": r.TicketSearch(rounds=1, rewind=0, s_init=0.01),
        "magnitude": r.MagnitudePruning(sparsity=0.5),
        "iterative magnitude": r.IterativeMagnitude(rounds=1, fraction=0.3),
        "iterative stochastic": r.IterativeStochastic(rounds=1, s_init=2.0),
        "sequential": r.SequentialSparsification(rounds=1, fraction=0.3),
        "smol": r.Smol(bits=4.0),
        "rate and distortion": r.RateDistortion(bits=1.0),
        "bit planes": r.Bsq(),
        "sharing": r.SoftSharing(),
        "layers": r.LayerPruning(),
        "deepened": r.Deepened(layer),
        "channels": r.ChannelPruning(ratio=0.25),
        "pooled": r.Pooled(),
        "coarse to fine": r.CoarseToFine(),
        "inside": r.Inside(tl.lifts.Standardize(), r.MagnitudePruning(sparsity=0.5)),
        "lift then tune": r.LiftThenTune(tl.lifts.SoftMask(s_init=0.1)),
        "lifted": r.Lifted(),
        "chain": Chain({"norm": tl.lifts.Normalize(), "cut": r.MagnitudePruning(sparsity=0.3)}),
        "auto": r.BestOf(trials=0.4, price="FLOPs"),
    }


def run_pair(model: str, first: str, second: str) -> str:
    """What becomes of a chain of two: ``"delivered"``, or the one line it raised."""
    make, data, _ = MODELS[model]
    by_name = recipes(model)
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = tl.fit(
                make(),
                data(1),
                data(2, 16),
                recipe=Chain({"first": by_name[first], "second": by_name[second]}),
                optimizer=partial(torch.optim.SGD, lr=0.05),
                epochs=EPOCHS,
                equal_cost=True,
                batch_size=16,
                progress=False,
            )
    except TorchliftError as reason:
        return str(reason)
    assert not list(nodes(result.model)), "a plain model"
    assert result.cost <= EPOCHS * (1 + 1e-9), f"it cost {result.cost} of {EPOCHS}"
    assert bool(torch.isfinite(torch.tensor(result.scores["valid"].loss)))
    stages = [phase["stage"] for phase in result.phases if "stage" in phase]
    assert [name for name in stages if ": " not in name] == ["first", "second"], "a chain has its own within"
    return "delivered"
