"""Every recipe there is, as small as it gets, and a network and data that all of them take."""

import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.lifts import Average, Expand, Normalize, Split, Standardize
from torchlift.recipes import (
    BestOf,
    Bsq,
    Chain,
    ChannelPruning,
    ContinuousSparsification,
    Deepened,
    Inside,
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
    RateDistortion,
    Rotated,
    SequentialSparsification,
    Smol,
    SoftSharing,
    TicketSearch,
)

PICTURES = ("CoarseToFine",)
"""Not for vectors: in the matrix of pairs, and in tests of its own."""

COORDINATES = ("Average", "Expand", "Normalize", "Split", "Standardize")

RECIPES = {
    "plain": Plain(),
    "neural lifting": NeuralLifting("0", width=8),
    "linear lifting": Expand(),
    "folded norm": Normalize(),
    "centered": Standardize(),
    "averaged": Average(),
    "in parts": Split("*", 2),
    "rotated": Rotated(),
    "rotated, centered": Rotated(centered=True),
    "lifted": Lifted(),
    "lifted isgm": Lifted("isgm", options={"rounds": 1, "inner": 1}),
    "lifted bcd": Lifted("bcd", options={"update": "linearized"}),
    "lifted init": LiftedInit(epochs=1),
    "sparsification": ContinuousSparsification(sparsity=0.6),
    "sparsification, normalized": Inside(Normalize(), ContinuousSparsification(sparsity=0.6)),
    "tickets": TicketSearch(rounds=1, rewind=1, s_init=0.01),
    "magnitude": MagnitudePruning(sparsity=0.6),
    "gradual": MagnitudePruning(sparsity=0.6, steps=2),
    "iterative magnitude": IterativeMagnitude(rounds=1, fraction=0.5),
    "iterative stochastic": IterativeStochastic(rounds=1, s_init=2.0),
    "sequential": SequentialSparsification(rounds=1, fraction=0.5),
    "rate and distortion": RateDistortion(bits=1.0),
    "smol": Smol(bits=3.0),
    "smol, moving": Inside(Normalize(), Smol(bits=3.0, zeros="moving")),
    "bit planes": Bsq(),
    "sharing": SoftSharing(),
    "layers": LayerPruning(layers=1),
    "deepened": Deepened("2"),
    "channels": ChannelPruning(ratio=0.25),
    "pooled": Pooled(),
    "chain": Chain({"norm": Normalize(), "prune": MagnitudePruning(sparsity=0.4)}),
    "chain, normalized": Inside(
        Normalize(),
        Chain(ContinuousSparsification(sparsity=0.4, finetune=0.0), Smol(bits=2.0, zeros="moving")),
    ),
    "auto": BestOf(trials=0.4, price="FLOPs"),
    "lift then tune": LiftThenTune(tl.lifts.SoftMask(s_init=0.1)),
    "a lift": tl.lifts.Standardize(),
    "a lift that learns": tl.lifts.Lifter("0", width=8),
    "a mask": tl.lifts.SoftMask(s_init=0.1),
    "auxiliary": tl.lifts.Auxiliary(),
    "a function": lambda task, fit: (fit(task, name="mine"), task)[1],
}


def one_each() -> dict[str, object]:
    """The first of every public recipe, and of the lifts that change coordinates."""
    first: dict[str, str] = {}
    for name, recipe in RECIPES.items():
        first.setdefault(type(recipe).__name__, name)
    kinds = (*(kind for kind in tl.recipes.__all__ if kind not in PICTURES), *COORDINATES)
    return {first[kind]: RECIPES[first[kind]] for kind in kinds}


def data(seed: int, n: int = 192) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] * x[:, 1] > 0).long()


def model(pruned: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    middle = [nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU()]
    maps = [nn.Unflatten(1, (2, 2, 2)), nn.Flatten()]
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), *middle, *maps, nn.Linear(8, 2))
    if pruned:
        with torch.no_grad():
            for layer in (net[0], net[2]):
                layer.weight.mul_(torch.rand(layer.weight.shape) > 0.4)
    return net
