"""Tickets in Conv-6: CS with rewinding, IMP and ISS, trained from scratch (thesis Figure 4.11)."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn.functional import pad
from torch.optim import Adam

from papers.common.arms import Row, spread
from papers.common.protocol import protocol, thinned
from papers.savarese_thesis.pruning_runs import Setting, as_record, fewer, of, side_by_side, sized, whole
from papers.savarese_thesis.ticket_search import matching
from torchlift import Arm
from torchlift.data import Splits, load
from torchlift.models import Conv6
from torchlift.recipes import IterativeMagnitude, IterativeStochastic, TicketSearch

PUBLISHED = protocol("savarese_thesis", "Figure 4.11")
STARTS = tuple(round(-0.2 + 0.02 * number, 2) for number in range(16))
EPS = 1e-8
SHORT = (0.0, 0.05, 0.1, 0.2)  # few steps of Adam: the window between all and nothing is narrow


def adam(lr: float, **more: Any) -> dict[str, Any]:
    """Without normalization plain SGD hardly leaves the start."""
    return {"optimizer": partial(Adam, lr=lr), "batch_size": 64, "progress": False, **more}


def searches(
    training: Setting,
    rounds: int,
    many: tuple[int, ...],
    rates: dict[str, float],
    starts: tuple[float, ...],
    eps: float,
) -> dict[str, Arm]:
    """CS rewinds before each of its few rounds; IMP and ISS run many. All tickets start at epoch 0."""
    masks = {"*logit": {"eps": eps}, "*": {}}
    ways = {
        f"CS, s_init {start}": Arm(
            TicketSearch(rounds, 0, s_init=start, restart=True),
            epochs=(rounds + 1) * training.epochs,
            groups=masks,
        )
        for start in starts
    }
    for count in many:
        ways[f"IMP, round {count}"] = training.arm(IterativeMagnitude(count, rates, 0), count + 1)
        ways[f"ISS, round {count}"] = training.arm(IterativeStochastic(count), count + 1)
    return ways


def setting(stand_in: bool, data: str | None) -> tuple[Setting, int, tuple[int, ...], dict[str, float]]:
    """With CS's rounds, the others' rounds, IMP's rates for convolutions and dense layers."""
    if not stand_in:
        fit = PUBLISHED.settings("Adam") | {"progress": False}
        training = Setting("Conv-6, CIFAR-10", Conv6, whole("cifar10", data), 40.0, fit)
        return training, 4, (5, 10, 20, 30), {"*conv*": 0.15, "*": 0.2}
    mnist = fewer(load("mnist", data), 2000, 2000)
    splits = Splits(framed(mnist.train), framed(mnist.valid), framed(mnist.test), mnist.kind)
    title = "Conv-6 at an eighth of its width, 2000 images of MNIST"
    training = Setting(title, partial(Conv6, channels=1, width=0.125), splits, 8.0, adam(2e-3))
    return training, 2, (1, 2), {"*conv*": 0.4, "*": 0.5}


def framed(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """28×28 images in the middle of 32×32."""
    return pad(pair[0], (2, 2, 2, 2)), pair[1]


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    stand_in: bool = False,
) -> Row:
    """Every search on every seed; each ticket trained from its initial weights, as long as a round."""
    training, rounds, many, rates = setting(stand_in, data)
    training = sized(training, epochs, images, device)
    rounds, many = training.rounds(rounds), tuple(sorted({training.rounds(count) for count in many}))
    starts = tuple(thinned(SHORT if stand_in else STARTS, training.share))
    ways = searches(training, rounds, many, rates, starts, EPS)
    trials = side_by_side(training, ways, seeds or 3, out / f"conv6-tickets-{EPS:g}.jsonl")
    best = {f"best, {kind}": best_accuracy(trials, kind) for kind in ("CS", "IMP", "ISS")}
    return as_record(
        "Tickets in Conv-6", "section 4.5.4, Figure 4.11", training, stand_in, trials, **best,
        finding=f"{matching(trials).rstrip('.')}; Adam's ε is {EPS:g}, for weights and gates.",
        notes=[
            f"CS: {rounds} rounds, weights rewound before each. IMP drops {rates} of what is left per round.",
            f"Adam's ε for the logits of CS is {EPS:g}, torch's own, as for the weights; SoftMask has a "
            "larger one of its own: the gradients of logits are small.",
            "Adam for all; the thesis takes SGD for the logits of ISS, here they have 200 times the rate.",
        ],
    )  # fmt: skip


def best_accuracy(rows: Sequence[Row], kind: str) -> Row:
    """The best mean accuracy of a kind of search, with its spread."""
    names = dict.fromkeys(row["method"] for row in rows if row["method"].startswith(f"{kind},"))
    return max((spread(of(rows, name, "accuracy")) for name in names), key=lambda one: one["mean"])
