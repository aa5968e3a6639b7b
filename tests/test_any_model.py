"""Every lift on every model: it works as promised, or raises with a reason."""

import copy

import pytest
import torch

from any_models import ANY, any_model
from torchlift.core import Lift, Task, chain
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
from torchlift.testing import LAWS, Steps

EVERYWHERE: dict[str, Lift] = {
    "mask": SoftMask(variant="published", s_init=0.1),
    "mask with a target": SoftMask(sparsity=0.5),
    "channels": SoftMask(granularity="channel", s_init=0.1, variant="published"),
    "slim": Slim(sparsity=0.5),
    "soft threshold": SoftThreshold(s_init=-6.0),
    "hard concrete": HardConcrete(),
    "stochastic": StochasticMask(),
    "expand": Expand(rank=0.5),
    "normalize": Normalize(),
    "standardize": Standardize(),
    "rotate": Rotate(largest=40),
    "split": Split("*", 2),
    "average": Average(),
    "linear lifter on the head": Lifter("*head", kind="linear", width=2),
    "auxiliary": Auxiliary(),
    "precision": Precision(),
    "dorefa": DoReFa(bits=3),
    "learned step": LearnedStep(bits=3),
    "code length": CodeLength(bits=3),
    "bit planes": BitPlanes(bits=4),
    "activation precision": ActivationPrecision(),
    "pact": Pact(),
    "templates": Templates(k=None),
    "critical layer": CriticalLayer("*"),
    "mask of a rotation": chain(SoftMask(sparsity=0.5), Rotate("*", largest=40)),
    "norm, then mask": chain(Normalize(), SoftMask(variant="published", s_init=0.1)),
}

NOT_SUPPORTED = {
    ("average", "mobilenet"): "running statistics",
    ("linear lifter on the head", "bert"): "matches nothing",
    ("linear lifter on the head", "vit"): "matches nothing",
    ("linear lifter on the head", "mobilenet"): "matches nothing",
    ("linear lifter on the head", "gpt2"): "shared with another layer",
    **{("auxiliary", model): r"nn\.Sequential" for model in ANY},
    **dict.fromkeys(
        [("normalize", "gpt2"), ("standardize", "gpt2"), ("norm, then mask", "gpt2")], "can lift none"
    ),
    **{
        (lift, model): "is not a ReLU"
        for lift in ("activation precision", "pact")
        for model in ("lstm", "vit", "gpt2")
    },
    **dict.fromkeys(
        [("templates", "mixed"), ("templates", "lstm"), ("templates", "gpt2")], "finds no weight to lift"
    ),
    ("critical layer", "lstm"): "found no activation",
    ("critical layer", "gpt2"): "Conv1D: not a Linear or a convolution",
}
"""What cannot be done right, and the reason that must be given."""

TRIED = (
    LAWS["starts_where_the_problem_is"],
    LAWS["comes_back_at_once"],
    LAWS["comes_back_plain"],
    LAWS["keeps_zeros"],
    LAWS["holds_each_tensor_once"],
    LAWS["reports_the_users_loss"],
)


PAIRS = [
    pytest.param(
        lift, model, marks=() if (i + j) % 3 == 0 or (lift, model) in NOT_SUPPORTED else pytest.mark.nightly
    )
    for i, lift in enumerate(EVERYWHERE)
    for j, model in enumerate(ANY)
    for kept in [(i + j) % 3 == 0 or (lift, model) in NOT_SUPPORTED]
]
"""In make test every lift meets every third model, and every model every third lift."""


@pytest.mark.parametrize(("lift_name", "model_name"), PAIRS)
def test_a_lift_works_or_says_why_not(lift_name: str, model_name: str) -> None:
    lift, (model, batch) = EVERYWHERE[lift_name], any_model(model_name)
    task, reason = Task(model), NOT_SUPPORTED.get((lift_name, model_name))
    if reason is not None:
        assert lift.accepts(task, Steps(batch)) is not None
        with pytest.raises(TorchliftError, match=reason):
            lift.lift(task, Steps(batch))
        return
    assert lift.accepts(task, Steps(batch)) is None
    for law in TRIED:
        law(lift, copy.deepcopy(task), batch)


def test_a_weight_no_side_of_which_turns_is_left_alone() -> None:
    wide = Task(torch.nn.Sequential(torch.nn.Linear(600, 600), torch.nn.Linear(600, 3)))
    assert list(Rotate().lift(wide).nodes) == ["model/1/weight"]
    with pytest.raises(TorchliftError, match="can turn nothing"):
        Rotate(where="0.weight").lift(wide)


def test_attention_is_as_wide_as_it_puts_out() -> None:
    attention = torch.nn.MultiheadAttention(24, 4, batch_first=True)

    class Attends(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attend, self.head = attention, torch.nn.Linear(24, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.attend(x, x, x)[0].mean(1))

    lifted = Lifter("attend", index=0).lift(Task(Attends()))
    assert lifted.model.attend.lifter.shape.features == 24
    assert lifted.predict(torch.randn(2, 5, 24)).shape == (2, 3)
