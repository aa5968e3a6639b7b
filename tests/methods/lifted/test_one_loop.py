"""Lifted training in the one loop: it goes on where it stopped, stands in compare, drops no option."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

import forked
import torchlift as tl
from torchlift import lifted
from torchlift.core import store
from torchlift.errors import TorchliftError
from torchlift.methods.lifted import solvers

HERE = Path(__file__).parent
METHODS: dict[str, tl.recipes.Lifted] = {
    "contrastive": tl.recipes.Lifted(),
    "contrastive sweeps": tl.recipes.Lifted("contrastive", options={"sweeps": 1}),
    "isgm": tl.recipes.Lifted("isgm", options={"schedule": "sqrt", "rho": 1e-3}),
    "bcd": tl.recipes.Lifted("bcd", options={"update": "linearized", "growth": 1.5}),
    "bcd in one batch": tl.recipes.Lifted("bcd", options={"update": "linearized"}),
    "splitting": tl.recipes.Lifted("splitting", options={"multiplier": True}),
}
WHOLE = ("bcd in one batch", "splitting")


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def net(*sizes: int) -> nn.Sequential:
    torch.manual_seed(0)
    modules: list[nn.Module] = []
    for below, above in pairwise(sizes or (4, 8, 6, 3)):
        modules += [nn.Linear(below, above), nn.ReLU()]
    return nn.Sequential(*modules[:-1]).double()


def task(n: int = 40) -> tuple[Tensor, Tensor]:
    x = randn(n, 4)
    return x, x[:, :3].argmax(1)


def settings(name: str) -> dict[str, Any]:
    x, y = task()
    squares = name == "splitting"
    data = (x, nn.functional.one_hot(y, 3).double()) if squares else (x, y)
    return {
        "train": data,
        "valid": data,
        "recipe": METHODS[name],
        "loss": "mse" if squares else "cross_entropy",
        "epochs": 4,
        "batch_size": 40 if name in WHOLE else 10,
        "progress": False,
    }


class Stopped(Exception):
    pass


class Mortal(TorchDispatchMode):
    """Ends with the n-th product of matrices."""

    def __init__(self, fatal: float) -> None:
        super().__init__()
        self.fatal, self.count = fatal, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        self.count += func.overloadpacket.__name__ in ("mm", "addmm", "bmm")
        if self.count >= self.fatal:
            raise Stopped
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("name", METHODS)
def test_a_lifted_run_goes_on_where_it_was_stopped(name: str, tmp_path: Path) -> None:
    with Mortal(math.inf) as whole:
        reference = tl.fit(net(), **settings(name))
    deaths = 0
    for life, share in enumerate((0.25, 0.2, 0.3, 0.15, math.inf)):
        try:
            with Mortal(share * whole.count):
                actual = tl.fit(net(), out=tmp_path, resume=life > 0, save_every=0.0, **settings(name))
        except Stopped:
            deaths += 1
    assert deaths == 4
    for key, value in reference.model.state_dict().items():
        assert torch.equal(value, actual.model.state_dict()[key])
    for old, new in zip(reference.history, actual.history, strict=True):
        assert {k: v for k, v in old.items() if k != "seconds"} == {
            k: v for k, v in new.items() if k != "seconds"
        }
    assert actual.history[-1]["objective"] > 0
    assert sum(key.startswith("energy ") for key in actual.history[-1]) == 2
    assert actual.cost == reference.cost > 0


def test_lifted_training_stands_in_compare() -> None:
    x, y = task(60)
    recipes = {name: METHODS[name] for name in ("contrastive", "isgm", "bcd")}
    table = tl.compare(
        net, (x, y), (x, y), (x, y), recipes=recipes, seeds=1, budget=60, batch_size=30, progress=False
    )
    for name in recipes:
        (run,) = table.results[name]
        assert 40 < run.cost <= 60 + 1e-9
        assert run.history[-1]["valid_loss"] < run.history[0]["valid_loss"]
    assert (
        table.results["contrastive"][0].history[-1]["step"] == table.results["plain"][0].history[-1]["step"]
    )


@pytest.mark.slow
def test_two_processes_train_lifted_as_one_does(tmp_path: Path) -> None:
    """Ranks ended 0.36 apart, from different seeds 0.69."""
    script = str(HERE / "lifted_ranks.py")
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    alone = forked.python(script, str(tmp_path / "one"))
    assert alone.returncode == 0, alone.stdout + alone.stderr
    forked.torchrun(script, str(tmp_path / "two"))
    for path in sorted((tmp_path / "one").iterdir()):
        other = tmp_path / "two" / path.name
        if path.suffix == ".pt":
            one, two = torch.load(path), torch.load(other)
        else:
            one, two = (load_file(folder / "model.safetensors") for folder in (path, other))
        worst = max(float((one[key] - two[key]).abs().max()) for key in one)
        assert worst < 1e-5, f"{path.name}: {worst}"


def test_shards_are_for_those_who_know_what_to_do_with_them() -> None:
    for method in ("isgm", "contrastive", "unified"):
        with pytest.raises(TorchliftError, match="takes no shard="):
            lifted.train(net(), task(), method=method, shard=lifted.Alone())


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"update": "linearized", "regularizer": solvers.Orthogonal()}, "a regularizer"),
        ({"update": "linearized", "learn_slopes": True}, "learn_slopes"),
        ({}, "update='exact'"),
        ({"update": "linearized", "penalty": "quadratic"}, "line search"),
    ],
)
def test_what_chunks_cannot_have_raises(options: dict[str, Any], what: str) -> None:
    with pytest.raises(TorchliftError, match=f"with chunk, cannot have .*{what}"):
        lifted.train(net(), task(), method="bcd", chunk=10, progress=False, **options)


def test_chunks_bear_noisy_inputs() -> None:
    x, y = randn(80, 3), randn(80, 2, seed=1)
    model = nn.Sequential(nn.Linear(3, 2)).double()
    options = {"loss": "mse", "rho": 0.0, "input_noise": 1.0, "progress": False}
    lifted.train(model, (x, y), method="bcd", epochs=1, chunk=7, **options)
    expected, _ = solvers.ridge(x, y, 1.0, 80.0)
    assert torch.allclose(model[0].weight.detach(), expected, atol=1e-8)


def test_bcd_streams_what_does_not_stand_in_memory() -> None:
    data, models = TensorDataset(*task()), [net(), net()]
    for model, samples in zip(models, (DataLoader(data, 7), task()), strict=True):
        lifted.train(model, samples, method="bcd", update="linearized", epochs=3, chunk=7, progress=False)
    assert torch.allclose(models[0](task()[0]), models[1](task()[0]), atol=1e-8)


def test_every_sample_counts_in_chunks() -> None:
    """A last batch of one sample is left out of ordinary training: sums over all samples need it."""
    x, y = randn(41, 4), randn(41, 3, seed=1)
    models = [net(4, 3), net(4, 3)]
    for model, chunk in zip(models, (10, 41), strict=True):
        lifted.train(model, (x, y), method="bcd", loss="mse", epochs=1, chunk=chunk, progress=False)
    assert torch.allclose(models[0](x), models[1](x), atol=1e-9)


def test_splitting_has_penalties_of_its_own() -> None:
    x, y = task()
    for options in ({"penalty": "classical"}, {"mu": 3.0}):
        with pytest.raises(TorchliftError, match="set gamma and beta"):
            lifted.train(net(), (x, y), method="splitting", loss="mse", progress=False, **options)


def test_the_linear_schedule_falls_on_loaders_too() -> None:
    loader, models = DataLoader(TensorDataset(*task()), 10), {}
    for schedule in ("linear", "constant"):
        models[schedule] = net()
        lifted.train(models[schedule], loader, schedule=schedule, epochs=3, progress=False)
    weights = [model[0].weight for model in models.values()]
    assert not torch.allclose(*weights)


@pytest.mark.parametrize("name", METHODS)
def test_frozen_layers_stay(name: str) -> None:
    model, arguments = net(), settings(name)
    model[2].requires_grad_(False)
    actual = tl.fit(model, **arguments).model
    assert torch.equal(actual[2].weight, model[2].weight)
    assert torch.equal(actual[2].bias, model[2].bias)
    assert not torch.equal(actual[0].weight, model[0].weight)
    model[2].bias.requires_grad_(True)
    if name not in ("contrastive", "contrastive sweeps"):
        with pytest.raises(TorchliftError, match="weight or its bias frozen"):
            tl.fit(model, **arguments)


@pytest.mark.parametrize("act", [nn.LeakyReLU(0.1), nn.PReLU(), lifted.Act("leaky_relu", slope=0.1)])
def test_learned_slopes_reach_their_module_and_a_checkpoint(act: nn.Module, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), act, nn.Linear(5, 3)).double()
    recipe = tl.recipes.Lifted("bcd", options={"update": "linearized", "learn_slopes": True})
    options = {"recipe": recipe, "epochs": 2, "batch_size": 40, "progress": False, "out": tmp_path}
    actual = tl.fit(model, task(), **options).model
    again = tl.fit(model, task(), resume=True, **options).model
    x = randn(20, 4, seed=3)
    assert not torch.equal(actual[1](x), model[1](x))
    assert torch.equal(actual(x), again(x))


@pytest.mark.parametrize(("method", "share"), [("isgm", 1.0), ("bcd", 1 / 40)])
def test_history_has_the_whole_objective(method: str, share: float) -> None:
    model, (x, y) = net(), task()
    options = {"rho": 0.3, "tau": 1e-9} if method == "isgm" else {"rho": 0.3, "update": "linearized"}
    row = lifted.train(model, (x, y), method=method, epochs=1, mu=2.0, progress=False, **options).history[-1]
    size = 0.3 * share * sum(float(m.weight.detach().square().sum()) for m in model if hasattr(m, "weight"))
    assert row["objective"] == pytest.approx(row["loss"] + 2 * sum(row["penalties"]) + size, rel=1e-9)


def test_settings_that_blocks_have_no_use_for_are_named(caplog: pytest.LogCaptureFixture) -> None:
    tl.fit(net(), **settings("isgm") | {"epochs": 1, "clip": 1.0})
    assert "takes its own steps, without clip" in caplog.text


def test_the_runs_batches_are_the_batches() -> None:
    recipe = tl.recipes.Lifted("isgm", options={"batch_size": 7})
    with pytest.raises(TorchliftError, match="give batch_size to fit"):
        tl.fit(net(), task(), recipe=recipe, progress=False)


def test_pruned_weights_and_other_losses_raise() -> None:
    model = net()
    model[0].weight.data[:, :2] = 0.0
    with pytest.raises(TorchliftError, match=r"fill the zeros of 0\.weight.*'contrastive' and 'unified'"):
        tl.fit(model, task(), recipe=tl.recipes.Lifted("isgm"), progress=False)
    with pytest.raises(TorchliftError, match="Contrastive needs loss="):
        tl.fit(
            net(),
            task(),
            recipe=tl.recipes.Lifted(),
            loss=lambda m, b: m(b[0]).square().mean(),
            progress=False,
        )


@pytest.mark.parametrize("method", ["contrastive", "unified"])
def test_pruned_weights_stay_zero_where_the_optimizer_steps(method: str) -> None:
    model = net()
    before = model[0].weight.data.clone()
    before[:, :2] = 0.0
    model[0].weight.data.copy_(before)
    store(model, "0.weight", kept=before != 0)
    lifted.train(model, task(), method=method, epochs=2, progress=False)
    assert bool((model[0].weight[:, :2] == 0).all())
    assert not torch.equal(model[0].weight, before)
    assert torch.equal(tl.stored(model)["0.weight"].kept, before != 0)
    again = tl.fit(model, task(), recipe=tl.recipes.Lifted(method), epochs=1, progress=False).model
    assert bool((again[0].weight[:, :2] == 0).all())


def test_train_fills_zeros_that_are_not_on_record_as_a_mask() -> None:
    model = net()
    model[0].weight.data[:, :2] = 0.0
    lifted.train(model, task(), epochs=1, progress=False)
    assert bool((model[0].weight[:, :2] != 0).any())
    model[0].weight.data[:, :2] = 0.0
    store(model, "0.weight", kept=model[0].weight != 0)
    with pytest.raises(TorchliftError, match=r"fill the zeros of 0\.weight"):
        lifted.train(model, task(), epochs=1, progress=False)


def test_the_report_shows_the_energy_of_every_layer(tmp_path: Path) -> None:
    result = tl.fit(net(), **settings("isgm"))
    page = result.report(tmp_path / "report.html").read_text()
    assert "Energy of each layer" in page
