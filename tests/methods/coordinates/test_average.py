"""w̄_k = Σ c_j w_j, c_j ∝ (j + η − 1)! / (j − 1)!."""

import math

import pytest
import torch
from torch import nn

import torchlift as tl
from torchlift.core import Task, constrain
from torchlift.errors import TorchliftError
from torchlift.lifts import Average


def coefficient(j: int, eta: int) -> float:
    return math.factorial(j + eta - 1) / math.factorial(j - 1)


@pytest.mark.parametrize("eta", [0, 1, 8])
def test_the_mean_has_the_weights_of_its_formula(eta: int) -> None:
    lift = Average(eta=eta)
    lifted = lift.lift(Task(nn.Linear(3, 2).double(), "mse"))
    node = lifted.nodes["model/weight"]
    path = torch.randn(7, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for weight in path:
        with torch.no_grad():
            node.weight.copy_(weight)
        constrain(lifted)
    shares = torch.tensor([coefficient(j, eta) for j in range(1, 8)], dtype=torch.float64)
    expected = torch.einsum("k,kij->ij", shares / shares.sum(), path)
    torch.testing.assert_close(lift.project(lifted).model.weight.detach(), expected)


def test_training_itself_is_the_same_and_the_mean_is_nearer_to_the_optimum() -> None:
    x = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))
    truth = torch.tensor([[1.0, -2.0, 0.5, 3.0]])
    data = (x, x @ truth.T + torch.randn(256, 1, generator=torch.Generator().manual_seed(1)))
    runs = {}
    for name, recipe in (("plain", None), ("mean", Average())):
        torch.manual_seed(0)
        runs[name] = tl.fit(
            nn.Linear(4, 1), data, data, loss="mse", recipe=recipe, epochs=30, batch_size=8, progress=False,
            optimizer=lambda p: torch.optim.SGD(p, lr=0.05), schedule="constant", keep="last",
        )  # fmt: skip
    best = torch.linalg.lstsq(x, data[1]).solution.T
    away = {name: float((run.model.weight.detach() - best).norm()) for name, run in runs.items()}
    assert [row["train_loss"] for row in runs["plain"].history] == pytest.approx(
        [row["train_loss"] for row in runs["mean"].history]
    )
    assert away["mean"] < 0.5 * away["plain"]


def test_biases_are_averaged_and_running_statistics_raise() -> None:
    assert set(Average().lift(Task(nn.Linear(3, 2), "mse")).nodes) == {"model/weight", "model/bias"}
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    assert "running statistics of '1'" in str(Average().accepts(Task(net, "mse")))
    with pytest.raises(TorchliftError, match="0 or more, got -1"):
        Average(eta=-1)
