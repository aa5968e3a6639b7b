"""Tickets in Conv-6: CS with rewinding, IMP and ISS, trained from scratch (thesis Figure 4.11)."""

from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn.functional import pad
from torch.optim import Adam

from papers.common.arms import Row
from papers.savarese_thesis.pruning_runs import Setting, Way, fewer, side_by_side, told
from papers.savarese_thesis.ticket_search import matching
from torchlift.data import Splits, crop_flip, load
from torchlift.models import Conv6
from torchlift.recipes import IterativeMagnitude, IterativeStochastic, TicketSearch

STARTS = (-0.2, -0.1, -0.05, 0.0, 0.05, 0.1)
SHORT = (0.0, 0.05, 0.1, 0.2)  # few steps of Adam: the window between all and nothing is narrow


def adam(lr: float, **more: Any) -> dict[str, Any]:
    """Without normalization plain SGD hardly leaves the start."""
    return {"optimizer": partial(Adam, lr=lr), "batch_size": 64, "progress": False, **more}


def searches(
    rounds: int, many: tuple[int, ...], rates: dict[str, float], starts: tuple[float, ...]
) -> dict[str, Way]:
    """CS rewinds before each of its few rounds; IMP and ISS run many. All tickets start at epoch 0."""
    ways = {
        f"CS, s_init {start}": Way(TicketSearch(rounds, 0, s_init=start, restart=True), rounds + 1)
        for start in starts
    }
    for count in many:
        ways[f"IMP, round {count}"] = Way(IterativeMagnitude(count, rates, 0), count + 1)
        ways[f"ISS, round {count}"] = Way(IterativeStochastic(count), count + 1)
    return ways


def setting(scale: float, data: str | None) -> tuple[Setting, int, tuple[int, ...], dict[str, float]]:
    """With CS's rounds, the others' rounds, IMP's rates for convolutions and dense layers."""
    if scale >= 1:
        place = Setting("Conv-6, CIFAR-10", Conv6, load("cifar10", data), 40.0, adam(3e-4, augment=crop_flip))
        return place, 4, (5, 10, 20, 30), {"*conv*": 0.15, "*": 0.2}
    few = max(200, round(100_000 * scale))
    found = fewer(load("mnist", data), few, 2000)
    parts = Splits(framed(found.train), framed(found.valid), framed(found.test), found.kind)
    title = f"Conv-6 at an eighth of its width, {few} images of MNIST"
    place = Setting(title, partial(Conv6, channels=1, width=0.125), parts, 8.0, adam(2e-3))
    return place, 2, (1, 2), {"*conv*": 0.4, "*": 0.5}


def framed(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """28×28 images in the middle of 32×32."""
    return pad(pair[0], (2, 2, 2, 2)), pair[1]


def run(
    out: Path = Path("runs/reproduce"), data: str | None = None, seeds: int = 3, scale: float = 0.02
) -> Row:
    """Every search on every seed; each ticket trained from its initial weights, as long as a round."""
    place, rounds, many, rates = setting(scale, data)
    ways = searches(rounds, many, rates, STARTS if scale >= 1 else SHORT)
    trials = side_by_side(place, ways, seeds, out / "conv6-tickets.jsonl")
    return told(
        "Tickets in Conv-6", "section 4.5.4, Figure 4.11", place, scale, trials, finding=matching(trials),
        notes=[
            f"CS: {rounds} rounds, weights rewound before each. IMP drops {rates} of what is left per round.",
            "Below full scale MNIST: on a few thousand images of CIFAR-10 the dense network hardly learns.",
            "Adam for all; the thesis takes SGD for the logits of ISS, here they have 200 times the rate.",
        ],
    )  # fmt: skip
