"""Recurrent networks in lifted training: shared weights, one exact block over all time steps."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift import lifted
from torchlift.methods.lifted import solvers
from torchlift.train import StepContext


def sequences(samples: int = 80, steps: int = 4) -> tuple[Tensor, Tensor]:
    """Whether the first entry of the first step is positive: it has to be remembered."""
    x = torch.randn(samples, steps, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, (x[:, 0, 0] > 0).long()


def net(activation: str = "tanh") -> lifted.RecurrentNet:
    torch.manual_seed(0)
    return lifted.RecurrentNet(2, 6, 2, 4, activation).double()


def test_the_network_is_torchs() -> None:
    model, x = net(), sequences()[0]
    rnn = nn.RNN(2, 6, batch_first=True).double()
    with torch.no_grad():
        rnn.weight_ih_l0.copy_(model.cell.weight[:, :2])
        rnn.weight_hh_l0.copy_(model.cell.weight[:, 2:])
        rnn.bias_ih_l0.copy_(model.cell.bias)
        rnn.bias_hh_l0.zero_()
        torch.testing.assert_close(model(x), model.head(rnn(x)[0][:, -1]))


@pytest.mark.parametrize(
    ("activation", "penalty"), [("tanh", "bregman"), ("relu", "classical"), ("relu", "bregman")]
)
def test_sweeps_never_raise_the_objective(activation: str, penalty: str) -> None:
    model = net(activation)
    method = lifted.BCD(update="linearized", penalty=penalty)
    history = lifted.train(model, sequences(30), method=method, epochs=5, progress=False).history
    values = [row["objective"] for row in history]
    assert all(b <= a * (1 + 1e-9) for a, b in pairwise(values))
    assert values[-1] < values[0]


def test_the_cell_is_the_ridge_solution_over_all_time_steps() -> None:
    x, y = sequences()
    method = lifted.BCD(penalty="classical", rho=0.1)
    problem = method.lift(tl.Task(net("relu"), "cross_entropy"))
    batch = x, y, torch.arange(len(x))
    problem.prepare([batch])
    problem.advance(batch, StepContext())
    states = problem.kept
    below = torch.cat([torch.cat([x[:, t], states[t - 1] if t else torch.zeros(80, 6)], 1) for t in range(4)])
    weight, bias = solvers.ridge(below, torch.cat(states), 0.5, 0.1)
    torch.testing.assert_close(problem.network.layers[0].weight, weight)
    torch.testing.assert_close(problem.network.layers[0].theta[:, -1], bias)


def test_contrastive_gradients_teach_it_to_remember() -> None:
    (x, y), model = sequences(), net("relu")
    lifted.train(model, (x, y), method="contrastive", lr=0.03, batch_size=40, epochs=25, progress=False)
    assert (model(x).argmax(1) == y).double().mean() > 0.8


def test_what_cannot_be_done_is_named() -> None:
    with pytest.raises(tl.TorchliftError, match="recurrent networks go without order"):
        lifted.BCD(order="red_black").lift(tl.Task(net(), "cross_entropy"))
    with pytest.raises(tl.TorchliftError, match="samples × 4 steps"):
        net()(torch.randn(3, 5, 2, dtype=torch.float64))
    with pytest.raises(tl.TorchliftError, match="one batch of all samples"):
        lifted_in_batches()


def lifted_in_batches() -> None:
    tl.fit(
        net(), sequences(), recipe=lifted.BCD(), loss="cross_entropy", epochs=1, batch_size=20, progress=False
    )
