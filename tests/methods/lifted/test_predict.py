"""The forward and the lifted rule."""

from itertools import pairwise

import cvxpy as cp
import pytest
import torch
from torch import Tensor, nn

from torchlift import lifted


def net(*sizes: int) -> nn.Sequential:
    torch.manual_seed(0)
    modules: list[nn.Module] = []
    for below, above in pairwise(sizes):
        modules += [nn.Linear(below, above), nn.ReLU()]
    return nn.Sequential(*modules[:-1]).double()


def inputs(n: int = 6) -> Tensor:
    return torch.randn(n, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_the_rules_agree_with_one_hidden_layer_and_differ_with_two() -> None:
    x = inputs()
    shallow, deep = net(4, 6, 3), net(4, 6, 5, 3)
    forward = lifted.predict(shallow, x)
    assert torch.equal(forward, shallow(x).detach())
    assert torch.allclose(lifted.predict(shallow, x, "lifted", mus=[0.3]), forward, atol=1e-9)
    assert not torch.allclose(lifted.predict(deep, x, "lifted", mus=[1.0, 1.0]), deep(x).detach(), atol=1e-3)


def test_class_scores_are_least_energies_against_cvxpy() -> None:
    x, model, mu = inputs(2), net(4, 5, 3), 0.4
    scores = lifted.predict(model, x, "lifted", mus=[mu], loss="cross_entropy")
    first, last = model[0], model[2]
    weights = [p.detach().numpy() for p in (first.weight, first.bias, last.weight, last.bias)]
    for row in range(2):
        for label in range(3):
            u = cp.Variable(5)
            v = weights[2] @ u + weights[3]
            energy = cp.log_sum_exp(v) - v[label]
            energy = energy + mu * cp.sum_squares(u - weights[0] @ x[row].numpy() - weights[1])
            problem = cp.Problem(cp.Minimize(energy), [u >= 0])
            problem.solve(solver=cp.CLARABEL)
            assert -float(scores[row, label]) == pytest.approx(problem.value, abs=1e-6)


def test_unknown_rules_and_convolutions_raise() -> None:
    with pytest.raises(ValueError, match="no rule 'both'"):
        lifted.predict(net(4, 3), inputs(), "both")  # type: ignore[arg-type]
    conv = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)).double()
    with pytest.raises(ValueError, match="convolutions or pooling"):
        lifted.predict(conv, torch.zeros(1, 1, 4, 4), "lifted")


def test_predicting_leaves_the_training_mode_alone() -> None:
    model = net(4, 6, 3).train()
    lifted.predict(model, inputs())
    assert model.training


def test_predicting_leaves_every_module_in_its_mode() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).double()
    model[1].eval()  # a norm whose statistics stay as they are, in a model that trains
    lifted.predict(model, inputs())
    assert [module.training for module in model] == [True, False, True, True]
