"""LeNet-5 on CIFAR-10 as the entries of neural lifting train it."""

import dataclasses
from functools import partial
from typing import Any

from torch.optim import SGD

from papers.common.arms import Entry, Row
from papers.common.protocol import protocol
from papers.neural_lifting.same_schedule import SameSchedule
from torchlift import Arm
from torchlift.data import crop_flip
from torchlift.lifts import Normalize
from torchlift.models import LeNet5, resnet
from torchlift.recipes import NeuralLifting
from torchlift.train.until import Plateau, Rule

RATES = (6e-2, 1.6e-3, 2.3e-3)  # Table 5
PHASES = (68, 117, 64)  # epochs the paper's phases took (section 5.1)
PATIENCE = 12
PAPER_EPOCHS = sum(PHASES)
LIFTING, SCHEDULE = "neural lifting", "its schedule"
TUNED, OURS = "tuned plain", "folded norm"

paper_model = partial(LeNet5, dropout=0.4, init="xavier")
model = partial(LeNet5, init="xavier")


PUBLISHED = protocol("neural_lifting", "Table 2")


def rules(epochs: float) -> tuple[Rule, Rule, Rule]:
    """The paper's patience, and its phases as caps, both times the part of its epochs that there is."""
    share = epochs / PAPER_EPOCHS
    patience = max(2, round(PATIENCE * share))  # twelve epochs of patience in a phase of seven never end it
    first, second, third = (Plateau(patience, cap=share * phase) for phase in PHASES)
    return first, second, third


def paper_arm(name: str, recipe: Any = None) -> Arm:
    """An arm of Table 2 with the settings of Table 5."""
    return Arm(recipe, **PUBLISHED.settings(name))


def lifting(epochs: float) -> NeuralLifting:
    """Algorithm 2 with the settings of Table 5, inside the budget."""
    return NeuralLifting(
        "trunk", width=1000, init="xavier", sparsity=0.99, lrs=RATES, mix=0.2, until=rules(epochs)
    )


def sgd(lr: float, momentum: float = 0.0, weight_decay: float = 1e-4) -> partial[SGD]:
    """SGD with these settings."""
    return partial(SGD, lr=lr, momentum=momentum, weight_decay=weight_decay)


def cosine(lr: float, weight_decay: float = 5e-4) -> Row:
    """The settings of all tuned arms: momentum 0.9, and a cosine."""
    return {"schedule": "cosine", "optimizer": sgd(lr, 0.9, weight_decay)}


def paper_arms(epochs: float, large: bool = False) -> list[Entry]:
    """Without augmentation: the paper's three models, the controls, ours."""
    tuned, ours = cosine(2e-2, 5e-3), cosine(5e-2, 5e-3)  # by search_lenet_paper
    big = Entry("ResNet-20", resnet, paper_arm("ResNet-20"), 84.87)
    return [
        *([big] if large else []),
        Entry("SGD", paper_model, paper_arm("SGD"), 67.37),
        Entry(LIFTING, paper_model, paper_arm(LIFTING, lifting(epochs)), 69.68),
        Entry(SCHEDULE, paper_model, paper_arm("SGD", SameSchedule(RATES, rules(epochs)))),
        Entry(TUNED, paper_model, Arm(**tuned)),
        Entry(OURS, paper_model, Arm(Normalize("trunk*"), **ours)),
    ]


def augmented_arms() -> list[Entry]:
    """With random crops and flips: the tuned control and ours."""
    plain, ours = Arm(augment=crop_flip, **cosine(5e-2)), cosine(1e-1)
    return [
        Entry(f"{TUNED}, crops and flips", model, plain),
        Entry(f"{OURS}, crops and flips", model, Arm(Normalize("trunk*"), augment=crop_flip, **ours)),
    ]


@dataclasses.dataclass(frozen=True)
class Contest:
    """Arms that share data, augmentation and budget; ``control`` names the one to beat."""

    arms: list[Entry]
    control: str
    epochs: float


def contests(epochs: float | None = None, large: bool = False) -> list[Contest]:
    """The paper's, and one with crops and flips; neural lifting took 249 epochs."""
    length = epochs or PAPER_EPOCHS
    return [
        Contest(paper_arms(length, large), TUNED, length),
        Contest(augmented_arms(), f"{TUNED}, crops and flips", length),
    ]
