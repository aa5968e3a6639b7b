"""Optimizers side by side, by glob, and what a factory must be."""

from functools import partial
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.core import Node, WeightLift
from torchlift.errors import TorchliftError

SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
ADAM = partial(torch.optim.Adam, lr=1e-3)
WHOLE = {"optimizer": SGD, "epochs": 5, "batch_size": 96, "progress": False}


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def data() -> tuple[Tensor, Tensor]:
    x = torch.randn(96, 4, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long()


def test_each_steps_its_own_and_both_do_what_they_do_alone() -> None:
    together = tl.fit(net(), data(), groups={"*bias": {"optimizer": ADAM}, "*": {}}, **WHOLE).model
    assert_close(together, by_hand(lr=0.1))


def by_hand(lr: float) -> nn.Module:
    """Weights by SGD, biases by Adam, on all samples at once."""
    model = net()
    biases = [p for n, p in model.named_parameters() if "bias" in n]
    weights = [p for n, p in model.named_parameters() if "bias" not in n]
    apart = [torch.optim.SGD(weights, lr=lr, momentum=0.9), ADAM(biases)]
    for _ in range(5):
        tl.Task(model)(data()).backward()
        for optimizer in apart:
            optimizer.step()
            optimizer.zero_grad()
    return model


def assert_close(one: nn.Module, two: nn.Module) -> None:
    for mine, theirs in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_a_rate_for_all_leaves_an_optimizer_of_ones_own_alone() -> None:
    def faster(task: tl.Task, fit: Any) -> tl.Task:
        fit(task, lr=0.5)
        return task

    groups = {"*bias": {"optimizer": ADAM}, "*": {"lr_factor": 2.0}}
    assert_close(tl.fit(net(), data(), groups=groups, recipe=faster, **WHOLE).model, by_hand(lr=1.0))


SHIFTS: list[float] = []
"""The largest shift of each weight that was projected."""


class Twin(Node):
    """w = v + s, s by Adam."""

    options: ClassVar[dict[str, dict[str, Any]]] = {"shift": {"optimizer": ADAM}}

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight, self.shift = nn.Parameter(weight.clone()), nn.Parameter(torch.zeros_like(weight))

    def forward(self) -> Tensor:
        return self.weight + self.shift

    def project(self) -> Tensor:
        SHIFTS.append(float(self.shift.detach().abs().max()))
        return self()

    def constrain(self) -> None:
        self.shift.clamp_(-1e-3, 1e-3)


class Twins(WeightLift):
    where = "*weight"

    def nodes(self, weights):
        return {name: Twin(weight) for name, weight in weights.items()}


def test_nodes_name_optimizers_and_constrain_after_every_step_and_it_resumes(tmp_path) -> None:
    settings = {"optimizer": SGD, "recipe": Twins(), "epochs": 4, "progress": False, "batch_size": 32}
    whole = tl.fit(net(), data(), **settings)
    seen: list[float] = []

    def stop(row) -> None:
        seen.append(row["train_loss"])
        if len(seen) == 2:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        tl.fit(net(), data(), out=tmp_path, save_every=0.0, listener=stop, **settings)
    again = tl.fit(net(), data(), out=tmp_path, resume=True, **settings)
    assert all(
        torch.equal(a, b) for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True)
    )
    assert SHIFTS
    assert max(SHIFTS) == pytest.approx(1e-3, rel=1e-3), "kept after every step"


@pytest.mark.parametrize(
    ("optimizer", "what"),
    [
        (partial(torch.optim.LBFGS, lr=1.0), "LBFGS"),
        (torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1), "takes a factory"),
    ],
)
def test_what_is_no_factory_raises_one_line(optimizer, what: str) -> None:
    with pytest.raises(TorchliftError, match=what):
        tl.fit(net(), data(), optimizer=optimizer, epochs=1, progress=False)
