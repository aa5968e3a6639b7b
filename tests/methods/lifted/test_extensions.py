"""Extensions: noisy inputs, learned slopes, orthogonal weights, less memory, initialization."""

import copy
from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift import lifted
from torchlift.errors import SelectionError
from torchlift.methods.lifted import activations, solvers


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("radius", [0.1, 2.0])
@pytest.mark.parametrize(
    ("m", "p", "kind"), [(25, 6, "random"), (25, 6, "twins"), (25, 6, "badly scaled"), (8, 12, "random")]
)
def test_robust_weights_against_cvxpy(radius: float, m: int, p: int, kind: str) -> None:
    a, u = randn(m, p), randn(m, 3, seed=1)
    if kind == "twins":
        a[:, p // 2 :] = a[:, : p - p // 2]
    if kind == "badly scaled":
        a = a * torch.logspace(-4, 4, p, dtype=torch.float64)
    weight, bias = solvers.robust_weights(a, u, radius)
    w, b = cp.Variable((3, p)), cp.Variable((1, 3))
    residual = a.numpy() @ w.T + np.ones((m, 1)) @ b - u.numpy()
    problem = cp.Problem(cp.Minimize(cp.norm(residual, "fro") + radius * cp.norm(w, "fro")))
    problem.solve(solver=cp.CLARABEL)
    actual = (a @ weight.mT + bias - u).norm() + radius * weight.norm()
    assert float(actual) == pytest.approx(problem.value, abs=1e-6)
    if kind != "badly scaled":  # there the value says nothing about the weights of tiny inputs
        assert float((weight - torch.from_numpy(w.value)).abs().max()) < 1e-4


def test_robust_weights_bound_the_worst_perturbation() -> None:
    """No perturbation of Frobenius norm 0.5 moves the residual beyond its norm plus 0.5‖W‖₂."""
    a, u = randn(25, 6), randn(25, 3, seed=1)
    weight, bias = solvers.robust_weights(a, u, 0.5)
    residual = a @ weight.mT + bias - u
    bound = residual.norm() + 0.5 * torch.linalg.matrix_norm(weight, 2)
    for seed in range(20):
        noise = randn(25, 6, seed=seed)
        shaken = residual + 0.5 * noise / noise.norm() @ weight.mT
        assert shaken.norm() <= bound + 1e-9


def test_all_uncertainty_means_no_weights() -> None:
    weight, bias = solvers.robust_weights(randn(5, 3), randn(5, 2, seed=1), 1e9)
    assert float(weight.abs().max()) < 1e-6
    assert torch.allclose(bias, randn(5, 2, seed=1).mean(0), atol=1e-6)


def test_the_learned_slope_minimizes_the_penalty() -> None:
    u, v = randn(200), randn(200, seed=1)
    u = torch.where(u < 0, 0.3 * u, u)
    best = solvers.leaky_slope(u, v)
    grid = torch.linspace(0.01, 1, 991)
    values = [float(activations.LeakyReLU(float(a)).penalty(u, v).sum()) for a in grid]
    assert best == pytest.approx(float(grid[int(np.argmin(values))]), abs=2e-3)


def test_slopes_are_learned_and_written_back() -> None:
    x = randn(60, 3)
    y = nn.functional.leaky_relu(x @ randn(3, 4, seed=2), 0.4) @ randn(4, 2, seed=3)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 12), nn.LeakyReLU(0.05), nn.Linear(12, 2)).double()
    result = lifted.train(
        net, (x, y), method="bcd", loss="mse", epochs=10, learn_slopes=True, mu=2.0, progress=False
    )
    objective = [row["objective"] for row in result.history]
    assert net[1].negative_slope != 0.05
    assert all(later <= earlier * 1.001 for earlier, later in pairwise(objective))


def test_input_noise_shrinks_the_first_layer_only_as_much_as_it_should() -> None:
    x, y = randn(80, 3), randn(80, 2, seed=1)
    norms = []
    for noise in (0.0, 1.0):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 2)).double()
        lifted.train(
            net, (x, y), method="bcd", loss="mse", epochs=1, rho=0.0, input_noise=noise, progress=False
        )
        norms.append(net[0].weight.detach())
    expected, _ = solvers.ridge(x, y, 1.0, 80.0)
    assert torch.allclose(norms[1], expected, atol=1e-8)
    assert norms[1].norm() < norms[0].norm()


def test_orthogonal_weights_stay_orthogonal_through_training() -> None:
    x, y = randn(50, 4), randn(50, 2, seed=1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    lifted.train(
        net,
        (x, y),
        method="bcd",
        loss="mse",
        epochs=2,
        update="linearized",
        regularizer=solvers.Orthogonal(),
        progress=False,
    )
    weight = net[0].weight.detach()
    assert torch.allclose(weight @ weight.mT, torch.eye(4).double(), atol=1e-9)


def test_recomputed_states_train_and_chunks_do_not_matter() -> None:
    x = randn(60, 4)
    y = x[:, :3].argmax(1)
    outputs = []
    for chunk in (60, 7):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 3)).double()
        history = lifted.train(
            net, (x, y), method="bcd", update="linearized", epochs=10, chunk=chunk, progress=False
        ).history
        assert history[-1]["loss"] < history[0]["loss"]
        outputs.append(net(x).detach())
    assert torch.allclose(*outputs, atol=1e-8)


def test_lifted_init_is_a_recipe_whose_cost_counts() -> None:
    x = randn(200, 4).float()
    y = x[:, :3].argmax(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 3))
    results = {}
    for name, recipe in {"plain": None, "lifted": tl.recipes.LiftedInit(epochs=5)}.items():
        model = copy.deepcopy(net)
        results[name] = tl.fit(model, (x, y), (x, y), recipe=recipe, epochs=1, progress=False)
    assert results["lifted"].cost > results["plain"].cost
    first = results["lifted"].history[0]
    assert first["train_loss"] < results["plain"].history[0]["train_loss"]


def test_lifted_init_rejects_what_it_cannot_read() -> None:
    x, y = randn(20, 4).float(), torch.arange(20) % 3
    with pytest.raises(SelectionError, match="GELU"):
        tl.fit(
            nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 3)),
            (x, y),
            recipe=tl.recipes.LiftedInit(),
            epochs=1,
            progress=False,
        )
