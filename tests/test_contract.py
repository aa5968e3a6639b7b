"""The public calls, as the documentation promises them, on the smallest data that will do."""

import importlib
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import torchlift as tl

SGD = partial(torch.optim.SGD, lr=0.1)


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


@pytest.fixture
def split():
    x = torch.randn(48, 4)
    return (x[:32], x[:32].argmax(1) % 3), (x[32:], x[32:].argmax(1) % 3)


def public(module: ModuleType, path: str, seen: set[ModuleType]) -> Iterator[tuple[str, Any]]:
    """Every name that a module and the modules it shows export, with what it stands for."""
    seen.add(module)
    for name in getattr(module, "__all__", ()):
        value = getattr(module, name)
        if not isinstance(value, ModuleType):
            yield f"{path}.{name}", value
        elif value.__name__.startswith("torchlift.") and value not in seen:
            yield from public(value, f"{path}.{name}", seen)


def test_a_public_name_is_the_name_of_its_class_or_function():
    seen: set[ModuleType] = set()
    named = [*public(tl, "tl", seen), *public(importlib.import_module("torchlift.integrations"), "", seen)]
    ours = [(path, v) for path, v in named if getattr(v, "__module__", "").startswith("torchlift.")]
    other = {path: v.__name__ for path, v in ours if path.rpartition(".")[2] != getattr(v, "__name__", None)}
    assert len(ours) > 300
    assert not other


@pytest.mark.parametrize("loss", ["cross_entropy", "mse", "bce", lambda model, batch: model(batch[0]).sum()])
def test_task(loss):
    task = tl.Task(net(), loss)
    y = torch.zeros(5, dtype=torch.long) if loss == "cross_entropy" else torch.zeros(5, 3)
    assert task((torch.randn(5, 4), y)).shape == ()
    assert task.predict(torch.randn(5, 4)).shape == (5, 3)
    assert isinstance(task.model, nn.Module)
    assert isinstance(task, tl.Problem)


def test_the_protocol_in_ones_own_loop(split):
    (x, y), _ = split
    lift = tl.chain(tl.lifts.Lifter("2", init="zeros"), tl.lifts.SoftMask(where="*weight"))
    problem = lift.lift(tl.Task(net(), "cross_entropy"))
    optimizer = SGD(tl.groups(problem, {"*": {"weight_decay": 1e-4}}))
    for step in range(3):
        tl.anneal(problem, step / 2)
        optimizer.zero_grad()
        problem((x, y)).backward()
        optimizer.step()
    with pytest.raises(tl.core.TorchliftError, match="fit"):
        lift.project(problem)


def test_fit_and_what_it_returns(split, tmp_path):
    train, valid = split
    result = tl.fit(
        net(), train, valid, recipe=None, loss="cross_entropy", optimizer=SGD, schedule="cosine", epochs=2,
        batch_size=16, clip=1.0, seed=1, device="auto", out=tmp_path / "run", resume=False, progress=False,
    )  # fmt: skip
    assert {"phase", "epoch", "train_loss", "valid_loss", "metric", "cost"} <= set(result.history[-1])
    assert result.cost == pytest.approx(2.0)
    result.report(tmp_path / "report.html")
    result.save(tmp_path / "model.safetensors")
    assert (tmp_path / "report.html").stat().st_size > 1000
    with pytest.raises(tl.core.TorchliftError, match=r"resume=True.*overwrite=True"):
        tl.fit(net(), train, valid, optimizer=SGD, epochs=2, out=tmp_path / "run", progress=False)


def test_compare(split, tmp_path):
    train, valid = split
    recipes = {"linear": tl.lifts.Expand()}
    actual = tl.compare(net, train, valid, valid, recipes=recipes, seeds=2, budget=2, progress=False)
    assert "plain" in str(actual.table())
    actual.report(tmp_path / "compare.html")


def test_stopping_rules():
    assert not tl.until.Epochs(2).update(1.0)
    rule = tl.until.Plateau(patience=2, cap=10, min_delta=0.0)
    assert [rule.update(value) for value in (1.0, 1.0, 1.0)] == [False, False, True]
    assert tl.until.Stationary(grad_norm=0.1, cap=10).update(0.01)


@pytest.mark.parametrize(
    "recipe",
    [
        tl.recipes.Plain(),
        tl.recipes.NeuralLifting(
            "2", kind="mlp", until=tl.until.Epochs(1), lrs=(0.1, 0.1, 0.1), mix=0.2, match="mse", cycles=1
        ),
        tl.lifts.Expand(),
        tl.recipes.ContinuousSparsification(where="*weight", s_init=0.0, gate="erf"),
        tl.recipes.TicketSearch(rounds=2, rewind=1),
        tl.recipes.MagnitudePruning(sparsity=0.5),
        tl.recipes.IterativeMagnitude(rounds=2, fraction=0.2, rewind=None),
        tl.recipes.LiftedInit(),
        tl.recipes.BestOf(),
        tl.recipes.Chain({"a": tl.recipes.Plain(), "b": tl.lifts.Expand()}),
        tl.lifts.SoftMask(granularity="channel", beta_final=50.0, strength=1e-3, variant="published"),
    ],
    ids=lambda recipe: type(recipe).__name__,
)
def test_recipes_and_single_lifts(recipe, split):
    train, valid = split
    result = tl.fit(net(), train, valid, recipe=recipe, optimizer=SGD, epochs=4, progress=False)
    assert list(result.model.state_dict()) == list(net().state_dict())


@pytest.mark.parametrize("kind", ["mlp", "linear", lambda features: nn.Linear(features, features)])
@pytest.mark.parametrize("match", ["mse", "cosine", "kl"])
def test_lifter(kind, match):
    lifter = tl.lifts.Lifter(
        "2", kind=kind, width=5, init="xavier", sparsity=0.5, scale=0.1, match=match, mix=1.0
    )
    assert lifter.lift(tl.Task(net(), "cross_entropy")).predict(torch.randn(2, 4)).shape == (2, 3)


def test_optimizers():
    model = net()
    options = {"lr": 0.1, "betas": (0.9, 0.999), "eps": 0.1, "weight_decay": 1e-4}
    for optimizer in (
        tl.optim.AvaGrad(model.parameters(), **options, decoupled=True, rule="thesis", foreach=True),
        tl.optim.AvaGrad(model.parameters(), **options, rule="published", skip_dead=False),
        tl.optim.DelayedAdam(model.parameters(), lr=1e-3),
        tl.optim.AdamEps(model.parameters(), lr=1e-3),
    ):
        optimizer.step(lambda: model(torch.ones(1, 4)).sum())
    grid = [[0.01, 0.1, 1.0], [1.0, 10.0]]
    assert tl.optim.gld(lambda a, b: a + b, grid, coordinate=True) is not None


def test_lifted_networks(split):
    (x, y), _ = split
    activation = tl.lifted.activations.get("leaky_relu", slope=0.1)
    u, v = torch.rand(5), torch.randn(5)
    for value in (activation(v), activation.penalty(u, v), activation.grad_u(u, v), activation.grad_v(u, v)):
        assert value.shape == (5,)
    for value in (
        activation.potential(u),
        activation.conjugate(v),
        activation.prox(v, 1.0),
        activation.project(v),
    ):
        assert value.shape == (5,)
    assert activation.lipschitz == pytest.approx(1.0)
    weight, bias = tl.lifted.solvers.ridge(x, torch.randn(32, 3), 1e-2, 1.0)
    assert weight.shape == (3, 4)
    assert bias.shape == (3,)
    states = tl.lifted.solvers.nnls(weight, bias, torch.randn(32, 3), torch.randn(32, 4), 1.0, 1.0)
    assert states.min() >= 0
    assert tl.lifted.solvers.simplex_cross_entropy(torch.randn(32, 3), y, 1.0).shape == (32, 3)
    model = net()
    tl.lifted.train(model, (x, y), method="bcd", penalty="classical", mu=1.0, loss="cross_entropy")
    for rule in ("forward", "lifted"):
        assert tl.lifted.predict(model, x, rule=rule, mus=1.0).shape == (32, 3)


@pytest.mark.parametrize("reg", [tl.convex.TV(0.1), tl.lifted.L1(0.1), tl.convex.L2(0.1)])
def test_inversion(reg):
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    y = model(torch.randn(3, 4)).detach()
    actual = tl.invert(
        model, y, reg=reg, shape=(4,), noise=None, method="auto", init=torch.zeros(3, 4), box=(-1.0, 1.0),
        tol=1e-4, max_iter=200, progress=False,
    )  # fmt: skip
    assert actual.x.shape == (3, 4)
    assert actual.alpha == pytest.approx(0.1)
    for name in ("objective", "residual", "iterations", "gap"):
        assert getattr(actual, name) >= 0


def test_complexity_and_deployment(split, tmp_path):
    (x, _), _ = split
    model = net()
    for kind in ("rkhs", "critical_sample_ratio"):
        assert tl.analyze.complexity(model, x, kind=kind) is not None
    with torch.no_grad():
        model[0].weight[3], model[0].bias[3] = 0.0, -1.0
    small = tl.deploy.shrink(model, x)
    torch.testing.assert_close(small(x), model(x))
    tl.deploy.save(small, tmp_path / "small.tl")
    torch.testing.assert_close(tl.deploy.load(tmp_path / "small.tl")(x), small(x))
    measured = tl.deploy.measure(small, x)
    for name in ("params", "nonzero", "bits", "file_bytes", "macs", "latency_ms"):
        assert getattr(measured, name) > 0
    tl.deploy.export(small, x, tmp_path / "small.onnx")
    assert (tmp_path / "small.onnx").exists()


def test_sharing():
    equal = nn.Sequential(nn.Linear(4, 6), *(nn.Linear(6, 6) for _ in range(3)), nn.Linear(6, 3))
    lift = tl.lifts.Templates(
        k=2, where="*weight", groups={"middle": ["[123].weight"]}, recurrence=0.1, fold=0.5
    )
    problem = lift.lift(tl.Task(equal, "cross_entropy"))
    (node,) = [m for m in problem.modules() if {"templates", "alpha"} <= dict(m.named_parameters()).keys()]
    assert (node.templates.shape, node.alpha.shape) == ((2, 6, 6), (3, 2))
    (similarity,) = tl.analyze.similarity(problem).values()
    torch.testing.assert_close(similarity, tl.lifts.templates.similarity(node.alpha.detach()))
    assert tl.lifts.templates.mix(node.templates, node.alpha).shape == (3, 6, 6)
    assert tl.lifts.templates.recurrence(node.alpha).shape == ()
    new, turn = tl.lifts.templates.reparameterize(node.alpha.T, [[0, 2], [1]])
    assert (new.shape, turn.shape) == ((2, 3), (2, 2))
    assert tl.lifts.reparameterize(node.alpha.T, node.templates, [[0, 2], [1]])[1].shape == (2, 6, 6)
    assert lift.project(problem).predict(torch.randn(2, 4)).shape == (2, 3)


def test_depth(split):
    (x, y), _ = split
    task = tl.Task(net(), "cross_entropy")
    for residual in (False, True):
        lift = tl.lifts.CriticalLayer("2", x, width=None, residual=residual, seed=0)
        deep = lift.lift(task)
        torch.testing.assert_close(deep.predict(x), task.predict(x), rtol=0, atol=1e-5)
        assert tl.analyze.is_lifted(deep, task, x) is True
        assert not tl.analyze.is_lifted(task, task, x)
        back = lift.project(deep)
        torch.testing.assert_close(back.predict(x), task.predict(x), rtol=0, atol=1e-5)
    assert list(tl.analyze.linearity(task.model, x)) == ["0", "2"]
    assert tl.analyze.cka(x, 2 * x) == pytest.approx(1)
    positive, negative, zero = tl.analyze.inertia(task, (x, y))
    assert positive + negative + zero == sum(p.numel() for p in task.parameters())
    small = tl.lifts.merge_linear(task.model, x, threshold=0.0)
    assert sum(isinstance(module, nn.Linear) for module in small.modules()) == 1
    recipe = tl.recipes.LayerPruning(threshold=0.99, layers=1, finetune=0.5)
    assert tl.fit(task, (x, y), recipe=recipe, epochs=2, progress=False).cost > 0
