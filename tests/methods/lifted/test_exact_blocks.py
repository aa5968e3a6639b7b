"""Exact means exact: gradients of blocks, singular problems, all states at once; else it is said."""

import pytest
import torch
from scipy.optimize import minimize_scalar
from solving import close, randn
from torch import Tensor, nn

from torchlift import lifted
from torchlift.convex.solvers import newton_units, quadratic
from torchlift.methods.lifted import BCD, Alone, Network, activations, penalties, solvers
from torchlift.methods.lifted.solvers.descent import descent_rule
from torchlift.methods.lifted.solvers.proximal import proximal_weights
from torchlift.methods.lifted.solvers.splitting import activation_step, relu_preactivation
from torchlift.methods.lifted.sweeps import state_step

SMALL = {
    "soft_threshold": {"t": 0.3},
    "nonneg_soft_threshold": {"t": 0.3},
    "group_soft_threshold": {"t": 0.3},
}
EVERY = [name for name in activations.names() if name != "sign"]


def act(name: str) -> activations.Activation:
    return activations.get(name, **SMALL.get(name, {}))


@pytest.mark.parametrize(("out", "p", "mu"), [(20, 50, 1e-8), (20, 50, 1e-12), (60, 120, 1e-8)])
def test_nearly_singular_nnls_meets_its_conditions(out: int, p: int, mu: float) -> None:
    """The first of these once gave rows of NaN, without a word."""
    weight, u, v = randn(out, p) / p**0.5, randn(20, out, seed=1), randn(20, p, seed=2)
    x = solvers.nnls(weight, torch.zeros(out).double(), u, v, 1.0, mu)
    slope = x @ weight.mT @ weight - u @ weight + mu * (x - v)
    assert x.min() >= 0
    assert slope.min() > -1e-9
    assert slope[x > 0].abs().max() < 1e-9


def test_a_box_solver_says_when_it_is_not_done() -> None:
    weight = randn(20, 50) / 50**0.5
    h = weight.mT @ weight + 1e-8 * torch.eye(50).double()
    box = solvers.Bounds(torch.zeros(50).double(), torch.full((50,), torch.inf).double())
    short = quadratic(h, randn(4, 20) @ weight, box, method="gradient", steps=20)
    assert not short.converged
    assert short.residual > 1e-4
    assert quadratic(h, randn(4, 20) @ weight, box).converged
    with pytest.raises(ValueError, match="NaN"):
        quadratic(h, torch.full((4, 50), torch.nan).double(), box)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(("samples", "inputs", "rho"), [(60, 8, 1e-3), (12, 20, 1e-2), (60, 8, 0.0)])
def test_newton_weights_have_no_gradient_left(name: str, samples: int, inputs: int, rho: float) -> None:
    a, penalty = randn(samples, inputs), penalties.Bregman(act(name))
    a[:, 2] = 0  # an input that is always off, as the border of digits
    target = penalty.activation(2 * randn(samples, 5, seed=1))
    start = 0.3 * randn(5, inputs + 1, seed=2)
    block = solvers.WeightBlock(a, target, penalty, 0.7, rho)
    actual = solvers.Exact().solve(block.block(), start)
    assert actual.converged
    assert actual.residual < 1e-8
    assert float(block.gradient(actual.x).abs().max()) < 1e-8
    assert block.value(actual.x) < block.value(start)
    if rho == 0 and name != "linear":
        assert torch.equal(actual.x[:, 2], start[:, 2])  # nothing asked for another weight


def test_newton_weights_without_bias_and_in_single_precision() -> None:
    a, relu = randn(80, 6).float(), penalties.Bregman(act("relu"))
    target = randn(80, 3, seed=1).float().clamp(min=0)
    block = solvers.WeightBlock(a, target, relu, 1.0, 0.1, bias=False)
    theta = torch.cat([0.1 * randn(3, 6, seed=2), torch.zeros(3, 1).double()], 1).float()
    actual = solvers.Exact().solve(block.block(), theta)
    assert actual.converged
    assert actual.x.dtype == torch.float32
    assert float(actual.x[:, -1].abs().max()) == 0
    assert float(block.gradient(actual.x).abs().max()) < 1e-4  # as far as single precision can tell


def test_units_that_are_off_everywhere_find_their_way_back() -> None:
    """No curvature in the bias, a slope that calls for more of it."""
    a, relu = randn(50, 4), act("relu")
    u = (a @ randn(4, 2, seed=1) + 3).clamp(min=0)
    theta = torch.zeros(2, 5).double()
    theta[:, -1] = -100
    actual = newton_units(a, u, relu, 1.0, 0.0, theta)
    assert actual.converged
    assert float(relu.penalty(u, a @ actual.x[:, :-1].mT + actual.x[:, -1]).sum()) < 1e-9


@pytest.mark.parametrize("penalty", ["bregman", "classical"])
@pytest.mark.parametrize("name", EVERY)
def test_newton_states_are_solved(name: str, penalty: str) -> None:
    torch.manual_seed(0)
    options = SMALL.get(name, {})
    model = nn.Sequential(
        nn.Linear(4, 9),
        lifted.Act(name, **options),
        nn.Linear(9, 7),
        lifted.Act(name, **options),
        nn.Linear(7, 3),
    ).double()
    x = 2 * randn(15, 4)
    network = Network.of(model, penalty, [0.3, 2.0], "cross_entropy")
    y = network.targets(torch.arange(15) % 3, x)
    for layer in network.layers:
        layer.theta = 3 * layer.theta
    states = network.states(x)
    for index in (1, 0):
        v, above = network.preactivation(index, x, states), network.above(index, states, y)
        block = solvers.StateBlock(network.penalties[index], network.mus[index], v, above)
        actual = solvers.Exact().solve(block.block(), states[index])
        assert actual.converged
        natural = actual.x - act(name)(v - block.slope(actual.x) / network.mus[index])
        assert float(natural.abs().max()) < 1e-8
        assert block.value(actual.x) <= block.value(states[index])
        states[index] = actual.x


def test_who_asked_for_exact_blocks_is_told() -> None:
    x = randn(30, 4)
    network = Network.of(
        nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).double(), "bregman", 1.0, "mse"
    )
    y = network.targets(10 * randn(30, 2, seed=1), x)
    states = network.states(x)
    with pytest.warns(solvers.StoppedShortWarning, match=r"weights of 8 units stopped after 1 steps.*steps="):
        BCD(update=solvers.Exact(steps=1)).weight_step(
            network.layers[0], network.penalties[0], 1.0, x, torch.tanh(randn(30, 8)), Alone()
        )
    with pytest.warns(solvers.StoppedShortWarning, match=r"states of shape \(30, 8\)"):
        state_step(network, 0, x, y, states, solvers.Exact(tolerance=1e-30, steps=1))


@pytest.mark.parametrize(
    ("name", "loss"), [*((name, "cross_entropy") for name in EVERY), ("relu", "mse"), ("tanh", "mse")]
)
def test_joint_states_of_every_activation(name: str, loss: str) -> None:
    """Block by block again and again ends where all at once does: the energy is jointly convex."""
    torch.manual_seed(0)
    options = SMALL.get(name, {})
    model = nn.Sequential(
        nn.Linear(4, 6),
        lifted.Act(name, **options),
        nn.Linear(6, 5),
        lifted.Act(name, **options),
        nn.Linear(5, 3),
    ).double()
    x = randn(8, 4)
    network = Network.of(model, "classical", [0.8, 0.3], loss)
    labels = torch.arange(8) % 3
    y = network.targets(labels if loss == "cross_entropy" else randn(8, 3, seed=1), x)
    together, apart = solvers.joint_states(network, x, y, network.states(x)), network.states(x)
    for _ in range(40):
        for index in (1, 0):
            apart[index] = state_step(network, index, x, y, apart, solvers.Exact(1e-11))
    for a, b in zip(together, apart, strict=True):
        close(a, b)


def test_joint_states_of_convolutions_and_their_errors() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(2, 3, 2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(3, 2),
    ).double()
    x = randn(6, 1, 6, 6)
    network = Network.of(model, "classical", 1.0, "cross_entropy")
    y, states = network.targets(torch.arange(6) % 2, x), network.states(x)
    actual = solvers.joint_states(network, x, y, states)
    weights = torch.tensor(network.mus).double()

    def energy(states: list[Tensor]) -> Tensor:
        return network.layer_energies(x, states, y) @ weights

    assert [u.shape for u in actual] == [u.shape for u in states]
    for seed in range(20):
        moved = [
            p.domain(u + 1e-3 * randn(*u.shape, seed=seed + i))
            for i, (u, p) in enumerate(zip(actual, network.penalties, strict=False))
        ]
        assert energy(actual) <= energy(moved) + 1e-12
    with pytest.raises(ValueError, match="penalty='classical' only"):
        solvers.joint_states(Network.of(model, "bregman", 1.0, "mse"), x, y, states)


def test_the_scalar_step_is_a_global_minimum() -> None:
    u, m = randn(40).clamp(min=-0.2), 2 * randn(40, seed=1)
    actual = relu_preactivation(u, m, 1.3, 0.4)
    for a, b, v in zip(u.tolist(), m.tolist(), actual.tolist(), strict=True):

        def cost(z: float, a: float = a, b: float = b) -> float:
            return 1.3 * (a - max(z, 0)) ** 2 + 0.4 * (z - b) ** 2

        best = min(minimize_scalar(cost, bounds=r, method="bounded").fun for r in ((-6, 0), (0, 6)))
        assert cost(v) <= best + 1e-9


def test_the_state_step_solves_its_normal_equations() -> None:
    weight, bias, v, target = randn(4, 6), randn(4, seed=1), randn(9, 4, seed=2), randn(9, 6, seed=3)
    u = activation_step(weight, bias, v, target, 0.7, 1.9)
    slope = 0.7 * (u - target) + 1.9 * (u @ weight.mT + bias - v) @ weight
    assert slope.abs().max() < 1e-10


@pytest.mark.filterwarnings(
    "ignore::torchlift.methods.lifted.solvers.StoppedShortWarning"
)  # of the quadratic one
@pytest.mark.parametrize("update", ["exact", "linearized", "accelerated", "momentum", "adaptive"])
@pytest.mark.parametrize("penalty", ["bregman", "classical", "quadratic"])
def test_block_updates_never_raise_the_objective(update: str, penalty: str) -> None:
    torch.manual_seed(0)
    layers = nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)
    model, x = nn.Sequential(*layers).double(), randn(30, 4)
    labels = (x[:, :3] + 0.3 * randn(30, 3, seed=1)).argmax(1)
    network = Network.of(model, penalty, 0.7, "cross_entropy")
    far = penalty == "quadratic" and update == "exact"  # not convex: "exact" would search on and on
    chosen = solvers.Exact(1e-4, 50) if far else descent_rule(update)
    y, rule = network.targets(labels, x), BCD(update=chosen)
    states = network.states(x)

    def objective() -> float:
        ridge = sum(float(layer.weight.square().sum()) for layer in network.layers)
        return (
            float(network.layer_energies(x, states, y) @ torch.tensor(network.mus).double())
            + rule.rho * ridge
        )

    value = start = objective()
    for _ in range(2):
        for index in (1, 0):
            states[index] = state_step(network, index, x, y, states, chosen)
            assert objective() <= value * (1 + 1e-10)
            value = objective()
        for i, layer in enumerate(network.layers):
            below, above = [x, *states][i], [*states, y][i]
            layer.theta = rule.weight_step(layer, network.penalties[i], network.mus[i], below, above, Alone())
            assert objective() <= value * (1 + 1e-10)
            value = objective()
    assert value < 0.95 * start


@pytest.mark.parametrize("shape", [(6, 10), (30, 5)])
def test_the_implicit_step_solves_its_problem(shape: tuple[int, int]) -> None:
    rows, theta = randn(*shape), randn(3, shape[1] + 1, seed=1)
    target = randn(shape[0], 3, seed=2).clamp(min=0)
    penalty = penalties.Bregman(lifted.activations.get("relu"))
    new = proximal_weights(rows, target, penalty, 0.8, theta, tau=0.3, rho=0.05, steps=5000).requires_grad_()
    v = rows @ new[:, :-1].mT + new[:, -1]
    fit = 0.8 * penalty.value(target, v).sum() / shape[0]
    tie = (new - theta).square().sum() / (2 * 0.3) + 0.05 * new[:, :-1].square().sum()
    (gradient,) = torch.autograd.grad(fit + tie, new)
    assert gradient.abs().max() < 1e-9
