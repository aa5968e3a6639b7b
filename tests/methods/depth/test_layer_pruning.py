"""Deep networks trained, made shallower by one of three criteria, trained on; and deeper for a while."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import clocks
import torchlift as tl
from torchlift.core import Task
from torchlift.errors import TorchliftError
from torchlift.methods.depth.units import ends, removable_units, without_unit
from torchlift.models import MLP, resnet
from torchlift.recipes import Deepened, LayerPruning
from torchlift.train import Interrupted

X = torch.randn(96, 4, generator=torch.Generator().manual_seed(1))
DATA = (X, (X[:, 0] * X[:, 1] > 0).long())


def deep(width: int = 6) -> nn.Module:
    torch.manual_seed(0)
    return MLP(4, width, width, width, width, 2, activation=nn.Tanh)


def run(
    recipe: object, out: Path | None = None, model: nn.Module | None = None, **changes: object
) -> tl.Result:
    settings = {
        "epochs": 4,
        "batch_size": 32,
        "progress": False,
        "optimizer": partial(torch.optim.Adam, lr=1e-2),
    }
    return tl.fit(model or deep(), DATA, DATA, recipe=recipe, out=out, **settings | changes)


def bends(model: nn.Module) -> int:
    """How many activations are left."""
    return sum(isinstance(module, nn.Tanh) for module in model.modules())


def assert_same(one: nn.Module, two: nn.Module) -> None:
    assert list(one.state_dict()) == list(two.state_dict())
    for (name, a), b in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("criterion", ["linearity", "removal", "cka"])
def test_each_criterion_reaches_the_depth(criterion: str) -> None:
    result = run(LayerPruning(layers=2, criterion=criterion))
    assert bends(result.model) == 2
    assert [row["phase"] for row in result.history] == ["train"] * 3 + ["finetune"]
    assert sum(key.startswith("linearity ") for key in result.history[0]) == 4
    assert sum(key.startswith("linearity ") for key in result.history[-1]) == 2


def test_the_threshold_takes_what_is_linear_and_nothing_else() -> None:
    task = Task(deep())
    with torch.no_grad():
        task.model.linear3.weight.mul_(1e-3)
        task.model.linear4.weight.mul_(1e4)
    result = run(LayerPruning(threshold=0.999, finetune=0.0), model=task.model, epochs=0.1)
    assert "linear3" not in dict(result.model.named_modules())
    assert "linear1" in dict(result.model.named_modules())


def test_a_drop_of_the_metric_is_not_passed() -> None:
    result = run(LayerPruning(drop=0.02, finetune=0.0), epochs=30)
    trained = run(None, epochs=30)
    assert bends(result.model) < 4
    assert result.scores["valid"].metric >= trained.scores["valid"].metric - 0.02 - 1e-6


def test_a_time_per_call_is_measured_once(tmp_path: Path) -> None:
    """Of 170, 128 and 86 parameters; by another clock a resumed run keeps the answer of the first."""
    with clocks.by_parameters(1e-5):
        first = run(LayerPruning(latency=1.0), tmp_path / "run")
    with clocks.by_parameters(1e-4):
        again = run(LayerPruning(latency=1.0), tmp_path / "run", resume=True)
    assert bends(first.model) == bends(again.model) == 2
    assert_same(first.model, again.model)


def test_out_of_reach_is_said_with_the_reasons() -> None:
    with pytest.raises(TorchliftError, match=r"can merge nothing here.*model's output"):
        run(LayerPruning(layers=0), model=nn.Sequential(nn.Linear(4, 2), nn.ReLU()), epochs=1)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"criterion": "size"}, "one of"),
        ({"layers": 2, "drop": 0.1}, "one target"),
        ({"criterion": "cka"}, "no threshold"),
        ({"finetune": 1.0}, r"\[0, 1\)"),
    ],
)
def test_wrong_settings_raise(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(TorchliftError, match=reason):
        LayerPruning(**settings)


@pytest.mark.parametrize(
    "recipe", [LayerPruning(layers=2), LayerPruning(layers=3, criterion="removal"), Deepened("linear2")]
)
@pytest.mark.parametrize("epoch", [2, 4])
def test_a_stopped_run_ends_the_same(tmp_path: Path, recipe: object, epoch: int) -> None:
    whole = run(recipe)
    rows: list[dict[str, object]] = []

    def stop(row: dict[str, object]) -> None:
        rows.append(row)
        if len(rows) == epoch - 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run(recipe, tmp_path / "run", listener=stop, save_every=0.0)
    resumed = run(recipe, tmp_path / "run", resume=True)
    assert_same(resumed.model, whole.model)


@pytest.mark.parametrize(
    "recipe", [LayerPruning(layers=2), Deepened("linear*"), Deepened("linear2", fade=False)]
)
def test_no_more_is_spent_than_given(recipe: object) -> None:
    result = run(recipe, epochs=6, equal_cost=True)
    assert result.cost <= 6 + 1e-9
    assert result.cost > 5


class Stack(nn.Module):
    """Blocks in a list, called one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(MLP(4, 9, 4) for _ in range(3))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def test_blocks_can_be_left_out() -> None:
    assert [unit.name for unit in removable_units(Stack(), X)] == ["blocks.0", "blocks.1", "blocks.2"]
    model = resnet(20)
    actual = removable_units(model, torch.randn(2, 3, 32, 32))
    assert [unit.name for unit in actual] == [
        "stage1.0", "stage1.1", "stage1.2", "stage2.1", "stage2.2", "stage3.1", "stage3.2",
    ]  # fmt: skip
    small = without_unit(model, actual[1])
    assert len(small.stage1) == 2
    assert small(torch.randn(2, 3, 32, 32)).shape == (2, 10)


def test_blocks_of_transformers_can_be_left_out() -> None:
    from cases import mobilenet, vit

    model, (x, _) = vit()
    actual = removable_units(model, x)
    assert [unit.name for unit in actual] == ["vit.layers.0", "vit.layers.1"]
    inputs, outputs = ends(model, actual[1], x)
    assert inputs.shape == outputs.shape == (8, 5 * 16)
    model, (x, _) = mobilenet()
    assert len(removable_units(model.eval(), x)) >= 5


def test_the_removed_block_is_the_one_that_hurts_least() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(MLP(4, 4, 4) for _ in range(3)), nn.Linear(4, 2))
    with torch.no_grad():  # the middle block does nothing
        model[1].linear1.weight.copy_(torch.eye(4))
        model[1].linear1.bias.fill_(50.0)
        model[1].head.weight.copy_(torch.eye(4))
        model[1].head.bias.fill_(-50.0)
    data = (X, model(X).detach())
    settings = {"loss": "mse", "epochs": 0.01, "progress": False}
    for criterion in ("removal", "cka"):
        recipe = LayerPruning(layers=2, criterion=criterion, finetune=0.0)
        result = tl.fit(model, data, data, recipe=recipe, **settings)
        assert [name for name, _ in result.model.named_children()] == ["0", "2", "3"], criterion


def test_accepts_says_no_where_nothing_can_go() -> None:
    seen: list[str | None] = []

    def ask(task: Task, fit: object) -> Task:
        seen.append(LayerPruning().accepts(task, fit))
        seen.append(LayerPruning(layers=1, criterion="removal").accepts(task, fit))
        seen.append(Deepened("*").accepts(task, fit))
        return task

    run(ask)
    run(ask, model=nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3, 2, bias=False)))
    run(ask, model=nn.Linear(4, 2))
    assert seen[:3] == [None, None, None]
    assert seen[4] == "LayerPruning: no block or square layer can be left out."
    assert seen[6] is not None
    assert "matches nothing" in str(seen[8])


def test_deepened_comes_back_to_the_given_network() -> None:
    result = run(Deepened("linear[23]"))
    assert [type(module) for module in result.model.modules()] == [
        type(module) for module in deep().modules()
    ]
    assert [row["phase"] for row in result.history] == ["deeper"] * 3 + ["finetune"]
    with pytest.raises(TorchliftError, match="one budget"):
        Deepened("linear2", base=0.5, finetune=0.5)


def test_deepened_merges_without_loss_at_the_end_of_the_fade() -> None:
    losses: dict[str, float] = {}

    def watch(task: Task, fit: object) -> Task:
        recipe = Deepened("linear*", finetune=0.0)
        lifted = fit.lift(recipe.lift, task)
        fit(lifted, name="deeper")
        losses["deeper"] = fit.evaluate(lifted).loss
        small = recipe.lift.project(lifted, fit)
        losses["merged"] = fit.evaluate(small).loss
        return small

    run(watch, epochs=6)
    assert losses["merged"] == pytest.approx(losses["deeper"], abs=1e-4)
