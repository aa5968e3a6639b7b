"""Linearity, alignment, signatures and lifted points, against independent formulas."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import torchlift as tl
from torchlift import analyze
from torchlift.core import Task, chain
from torchlift.errors import DataError, OrderError
from torchlift.lifts import CriticalLayer, SoftMask
from torchlift.models import MLP


def pearson_minimum(z: Tensor, a: Tensor) -> float:
    from scipy.stats import pearsonr  # a second to load, for one test

    pairs = zip(z.detach().T.numpy(), a.detach().T.numpy(), strict=True)
    return min(abs(pearsonr(x, y)[0]) for x, y in pairs if np.ptp(x) > 0 and np.ptp(y) > 0)


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU, nn.GELU])
def test_linearity_is_scipys_pearson_minimum(activation: type[nn.Module]) -> None:
    model, x = MLP(5, 9, 7, 3, activation=activation), torch.randn(1300, 5)
    z1 = model.linear1(x)
    z2 = model.linear2(activation()(z1))
    actual = analyze.linearity(model, x)
    assert actual == {
        "linear1": pytest.approx(pearson_minimum(z1, activation()(z1)), abs=1e-6),
        "linear2": pytest.approx(pearson_minimum(z2, activation()(z2)), abs=1e-6),
    }


def test_linearity_of_channels() -> None:
    model, x = (
        nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 1)),
        torch.randn(40, 2, 6, 6),
    )
    z = model[0](x).movedim(1, -1).flatten(0, -2)
    assert analyze.linearity(model, x)["0"] == pytest.approx(pearson_minimum(z, z.tanh()), abs=1e-6)


def test_a_loader_gives_what_the_tensor_gives() -> None:
    model, x = MLP(5, 9, 3), torch.randn(100, 5)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x), batch_size=7)
    assert analyze.linearity(model, loader) == pytest.approx(analyze.linearity(model, x), abs=1e-6)


def test_dead_and_constant_neurons_are_named() -> None:
    model, x = MLP(5, 6, 3), torch.randn(100, 5)
    with torch.no_grad():
        model.linear1.bias[2] = -1e3
        model.linear1.weight[4] = 0.0
    actual = analyze.neurons(model, x)["linear1"]
    assert actual.constant == (2, 4)
    z = model.linear1(x)
    assert actual.linearity == pytest.approx(pearson_minimum(z[:, [0, 1, 3, 5]], z[:, [0, 1, 3, 5]].relu()))
    assert actual.worst in (0, 1, 3, 5)


def test_a_layer_of_constants_is_linear() -> None:
    model = MLP(5, 6, 3)
    with torch.no_grad():
        model.linear1.bias.fill_(-1e3)
    actual = analyze.neurons(model, torch.randn(50, 5))["linear1"]
    assert actual.linearity == 1
    assert actual.worst is None


def test_zero_neurons_are_left_out_if_asked() -> None:
    model, x = MLP(5, 6, 3), torch.randn(100, 5)
    with torch.no_grad():
        model.linear1.bias += 100
        model.linear1.weight[1] *= 1e-4
        model.linear1.bias[1] = 0
        model.head.weight[:, 1] *= 1e-4
    assert analyze.linearity(model, x)["linear1"] < 0.95
    assert analyze.linearity(model, x, zero=1e-2)["linear1"] == pytest.approx(1)
    assert analyze.neurons(model, x, zero=1e-2)["linear1"].zero == (1,)


def test_problems_with_lifted_weights_raise() -> None:
    lifted = SoftMask().lift(Task(MLP(5, 6, 3)))
    with pytest.raises(OrderError, match="project it"):
        analyze.linearity(lifted, torch.randn(4, 5))
    assert analyze.Depth(torch.randn(4, 5))(lifted) == {}


def hsic(k: np.ndarray, m: np.ndarray) -> float:
    """HSIC₀ as the paper's A.6 writes it, with the centering matrix."""
    h = np.eye(len(k)) - 1 / len(k)
    return float((h @ k @ h).ravel() @ (h @ m @ h).ravel() / (len(k) - 1) ** 2)


@pytest.mark.parametrize("features", [(3, 4), (60, 70)])
def test_cka_is_the_papers_formula(features: tuple[int, int]) -> None:
    x, y = torch.randn(30, features[0]), torch.randn(30, features[1])
    y[:, :3] += x[:, :3]
    k, m = (x @ x.T).double().numpy(), (y @ y.T).double().numpy()
    want = hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m))
    assert analyze.cka(x, y) == pytest.approx(want, abs=1e-6)


def test_cka_is_one_for_rotations_and_less_for_other_maps() -> None:
    x = torch.randn(50, 4, dtype=torch.float64)
    q = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64))[0]
    assert analyze.cka(x, 3 * x @ q + 7) == pytest.approx(1)
    assert analyze.cka(x, x.tanh() ** 2) < 0.9
    assert np.isnan(analyze.cka(x, torch.ones(50, 2)))
    with pytest.raises(DataError, match="same inputs"):
        analyze.cka(x, x[:5])


def unbiased(k: np.ndarray, m: np.ndarray) -> float:
    """HSIC₁ by its definition as an average over distinct i, j, q, r (Song et al., 2012, eq. 4)."""
    n = len(k)
    total = 0.0
    for i in range(n):
        for j in range(n):
            for q in range(n):
                for r in range(n):
                    if len({i, j, q, r}) == 4:
                        total += k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q])
    return total / (n * (n - 1) * (n - 2) * (n - 3))


def test_batched_cka_is_the_ratio_of_unbiased_sums() -> None:
    x, y = torch.randn(14, 2, dtype=torch.float64), torch.randn(14, 3, dtype=torch.float64)
    y[:, :2] += x
    parts = [(a.numpy(), b.numpy()) for a, b in zip(x.split(7), y.split(7), strict=True)]
    grams = [(a @ a.T, b @ b.T) for a, b in parts]
    xy, xx, yy = (sum(unbiased(g[i], g[j]) for g in grams) for i, j in ((0, 1), (0, 0), (1, 1)))
    assert analyze.cka(x, y, batch=7) == pytest.approx(xy / (xx * yy) ** 0.5, abs=1e-6)


def test_batched_cka_tends_to_the_whole() -> None:
    x = torch.randn(4000, 5)
    y = x + 0.5 * torch.randn(4000, 5)
    assert analyze.cka(x, y, batch=50) == pytest.approx(analyze.cka(x, y), abs=0.01)


class Quadratic(nn.Module):
    """½ wᵀ A w."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.matrix, self.w = matrix, nn.Parameter(torch.zeros(len(matrix)))

    def forward(self, x: Tensor) -> Tensor:
        return x.sum() * 0 + self.w @ (self.matrix.to(self.w) @ self.w) / 2


def value(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return model(batch[0])


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 999))
def test_inertia_counts_signs(positive: int, negative: int, zero: int, seed: int) -> None:
    size = positive + negative + zero
    if positive + negative == 0:
        return
    generator = torch.Generator().manual_seed(seed)
    signs = torch.tensor([1.0] * positive + [-1.0] * negative + [0.0] * zero, dtype=torch.float64)
    values = signs * (0.5 + torch.rand(size, generator=generator, dtype=torch.float64))
    q = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))[0]
    task, batch = Task(Quadratic(q @ values.diag() @ q.T), value), (torch.ones(1), torch.ones(1))
    want = (positive, negative, zero)
    assert analyze.inertia(task, batch) == want
    assert analyze.inertia(task, batch, similarities=5) == want
    if zero:
        assert analyze.inertia(task, batch, largest=0) == want, "by products with vectors alone"


def test_lanczos_estimates_the_signature_of_a_large_hessian() -> None:
    """300 up, 200 down and 500 flat of 1,000, from 32 products with each of 8 vectors."""
    generator = torch.Generator().manual_seed(0)
    sizes = 1 + torch.rand(1000, generator=generator, dtype=torch.float64)
    signs = torch.cat([torch.ones(300), -torch.ones(200), torch.zeros(500)])
    task, batch = quadratic((sizes * signs).diag())
    actual = analyze.spectrum(task, batch, largest=50, rank=32, probes=8)
    assert actual.weights is not None
    assert float(actual.weights.sum()) == pytest.approx(1000)
    assert sum(actual.inertia) == 1000
    assert actual.inertia == pytest.approx((300, 200, 500), abs=25)


def test_lanczos_is_exact_where_few_values_differ_and_says_zero_where_it_cannot_tell() -> None:
    assert analyze.inertia(*quadratic(torch.eye(20)), largest=5, rank=8) == (20, 0, 0)
    wide = torch.logspace(-6, 0, 200, dtype=torch.float64)
    actual = analyze.spectrum(*quadratic(wide.diag()), largest=5, rank=8)
    assert actual.inertia.negative == 0
    assert 0 < actual.inertia.positive < 200


def quadratic(matrix: Tensor) -> tuple[Task, tuple[Tensor, Tensor]]:
    return Task(Quadratic(matrix), value), (torch.ones(1), torch.ones(1))


def test_small_curvatures_count_and_rounding_does_not() -> None:
    q = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64))[0]
    sizes = torch.tensor([3.0, 1.0, 0.2, 1e-2, 1e-3, 1.35e-4, 7.2e-5, 0.0], dtype=torch.float64)
    assert analyze.inertia(*quadratic(q @ sizes.diag() @ q.T)) == (7, 0, 1)


def test_scales_of_the_weights_do_not_change_the_signature() -> None:
    q = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))[0]
    matrix = q @ torch.tensor([2.0, 1.0, 1.0, -1.0, -0.5, 0.0], dtype=torch.float64).diag() @ q.T
    scale = torch.logspace(-3, 2, 6, dtype=torch.float64).diag()
    assert analyze.inertia(*quadratic(scale @ matrix @ scale)) == (3, 2, 1)


def test_what_the_gradient_leaves_is_not_curvature() -> None:
    task, batch = quadratic(torch.tensor([1.0, 1e-7], dtype=torch.float64).diag())
    (w,) = task.parameters()

    def boundary(gradient: float) -> float:
        with torch.no_grad():
            w.copy_(torch.tensor([gradient, 0.0]))
        return analyze.spectrum(task, batch).boundary

    assert boundary(1e-6) == pytest.approx(1e-6)
    assert boundary(0.1) < 1e-9, "far from a critical point only rounding counts"


def critical(seed: int) -> tuple[Task, tuple[Tensor, Tensor]]:
    from test_critical import critical as point

    return point(nn.ELU(), seed)


@pytest.mark.parametrize("seed", range(4))
def test_each_inserted_layer_adds_its_parameters_as_zero_eigenvalues(
    seed: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Bai et al. (2024), Figure 5: two neurons, six parameters, six more zeros, at critical points."""
    monkeypatch.syspath_prepend(request.config.rootpath / "tests" / "methods" / "depth")
    task, batch = critical(seed)
    one = CriticalLayer("2", batch[0], width=2, seed=seed)
    two = chain(one, CriticalLayer("2.outer", batch[0], width=2, seed=seed))
    shallow = analyze.spectrum(task, batch)
    for inserted, lift in ((1, one), (2, two)):
        deep = analyze.inertia(lift.lift(task), batch)
        assert deep == (
            shallow.inertia.positive,
            shallow.inertia.negative,
            shallow.inertia.zero + 6 * inserted,
        )


def test_at_ordinary_points_the_signature_changes() -> None:
    """Proposition 4.3 for any parameter is too strong: elsewhere negative eigenvalues appear."""
    x = torch.randn(30, 1, dtype=torch.float64)
    task, batch = Task(MLP(1, 2, 1, activation=nn.ELU).double(), "mse"), (x, torch.sin(3 * x))
    deep = CriticalLayer("head", x, width=2).lift(task)
    assert analyze.inertia(deep, batch).negative > analyze.inertia(task, batch).negative


def lifted_pair() -> tuple[Task, Task, Tensor]:
    task, x = (
        Task(MLP(3, 6, 5, 2, activation=nn.ELU).double(), "mse"),
        torch.randn(60, 3, dtype=torch.float64),
    )
    return CriticalLayer("linear2", x).lift(task), task, x


def test_each_condition_of_a_lifted_point_can_fail() -> None:
    deep, task, x = lifted_pair()
    assert analyze.is_lifted(deep, task, x)
    assert not analyze.is_lifted(task, task, x), "nothing was inserted"
    with torch.no_grad():
        deep.model.linear1.weight[0, 0] += 0.1
    assert not analyze.lifting(deep, task, x).local
    deep, task, x = lifted_pair()
    with torch.no_grad():
        deep.model.linear2.outer.weight[0, 0] += 0.1
    actual = analyze.lifting(deep, task, x)
    assert (actual.local, actual.linear, actual.preserving) == (True, True, False)
    assert actual.gap > 1e-3
    deep, task, x = lifted_pair()
    with torch.no_grad():
        deep.model.linear2.inner.bias.sub_(1.0)
    actual = analyze.lifting(deep, task, x)
    assert not actual.linear
    assert actual.bend > 1e-3


@given(st.lists(st.integers(0, 59), min_size=1, max_size=20, unique=True))
def test_lifted_on_a_set_is_lifted_on_its_parts(chosen: list[int]) -> None:
    """Proposition 4.4: S′ ⊆ S gives T_S ⊆ T_S′."""
    deep, task, x = lifted_pair()
    assert analyze.is_lifted(deep, task, x[chosen])


@pytest.mark.parametrize("layers", [("2", "2.outer"), ("2", "2.outer", "2.outer.outer")])
def test_residual_layers_one_after_another_are_a_lifting(layers: tuple[str, ...]) -> None:
    """Definition A.2 composed: each inserted layer adds what it was given, not the run's first input."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ELU(), nn.Linear(4, 2)).double()
    task, x = Task(model, "mse"), torch.randn(40, 3, dtype=torch.float64)
    deep = chain(*(CriticalLayer(name, x, residual=True) for name in layers)).lift(task)
    actual = analyze.lifting(deep, task, x)
    assert actual.gap < 1e-9
    assert actual, actual


def test_more_data_can_undo_a_lifting() -> None:
    deep, task, x = lifted_pair()
    assert not analyze.is_lifted(deep, task, torch.cat([x, 100 * x]))


def test_the_radius_is_where_a_neuron_leaves_its_piece() -> None:
    """One input, one neuron: y = x, lifted to relu(x − edge) + edge, so they part at x = edge exactly."""
    task = Task(nn.Sequential(nn.Linear(1, 1)).double(), "mse")
    with torch.no_grad():
        task.model[0].weight.fill_(1.0)
        task.model[0].bias.zero_()
    x = torch.linspace(1, 2, 11, dtype=torch.float64).unsqueeze(1)
    deep = CriticalLayer("0", x, seed=None, margin=2.0, activation=nn.ReLU()).lift(task)
    edge = 1 - 2.0 * (2 - 1)
    actual = analyze.radius(deep, task, x, largest=100, steps=700)
    want = x.squeeze() - edge
    assert bool((actual <= want * 1.0001).all())
    assert bool((actual >= want / 1.03).all()), "steps are 2 % apart"


def test_depth_logs_what_the_functions_say() -> None:
    model, x = MLP(5, 6, 4, 2), torch.randn(300, 5)
    actual = analyze.Depth(x, samples=100)(Task(model))
    assert {k: v for k, v in actual.items() if k.startswith("linearity")} == {
        f"linearity {name}": value for name, value in analyze.linearity(model, x).items()
    }
    h1 = model.activation1(model.linear1(x[:100]))
    h2 = model.activation2(model.linear2(h1))
    assert actual["cka linear1"] == pytest.approx(analyze.cka(x[:100], h1))
    assert actual["cka linear2"] == pytest.approx(analyze.cka(h1, h2))


def test_one_fit_shows_plateaus_and_linearity_side_by_side(tmp_path: Path) -> None:
    x = torch.randn(64, 3)
    data = (x, x.sum(1, keepdim=True))
    model = MLP(3, 5, 5, 1, activation=nn.Tanh)
    result = tl.fit(model, data, loss="mse", epochs=3, log=analyze.Depth(x), progress=False)
    assert [sorted(key for key in row if key.startswith("linearity")) for row in result.history] == [
        ["linearity linear1", "linearity linear2"]
    ] * 3
    result.report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "Linearity of layers" in text
    assert "Alignment of layers" in text
    assert "Loss: plateaus" in text
    assert "Cka linear1" not in text, "no chart of its own for each layer"
