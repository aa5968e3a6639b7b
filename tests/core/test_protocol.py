"""Chains, order, what a learning projection needs, and the small parts of the core."""

import copy
import dataclasses
from typing import ClassVar

import pytest
import torch
from torch import nn

from cases import build
from torchlift.core import (
    Dial,
    Frozen,
    LiftChain,
    Node,
    Task,
    WeightLift,
    anneal,
    chain,
    groups,
    named,
    original_parameters,
    penalty,
    select,
)
from torchlift.errors import DataError, NeedsFitError, OrderError, SelectionError, TorchliftError
from torchlift.lifts import Auxiliary, Expand, Lifter, SoftMask
from torchlift.testing import lands


class Square(Node):
    """w = v², penalty strength · Σv²."""

    options: ClassVar = {"root": {"weight_decay": 0.0, "lr_factor": 0.5}}

    def __init__(self, weight: torch.Tensor, strength: float) -> None:
        super().__init__()
        self.root, self.strength = nn.Parameter(weight.abs().sqrt()), strength

    def forward(self) -> torch.Tensor:
        return self.root**2

    def penalty(self) -> torch.Tensor:
        return self.strength * self.root.square().sum()

    def project(self) -> torch.Tensor:
        return self()


@dataclasses.dataclass(frozen=True)
class Squared(WeightLift):
    strength: float = 1.0
    where: str = "*weight"

    def nodes(self, weights):
        return {name: Square(weight, self.strength) for name, weight in weights.items()}


def test_a_chain_is_the_composition_with_both_penalties() -> None:
    model = nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.rand(2, 3) + 0.5)
    task = Task(model.double(), "mse")
    batch = (torch.randn(4, 3).double(), torch.randn(4, 2).double())
    lifted = chain(Squared(0.5), Squared(0.25, where="nodes.*.root")).lift(task)
    (root,) = [p for name, p in lifted.named_parameters() if name.endswith("root")]
    w1 = root**2
    prediction = batch[0] @ (w1**2).T
    expected = ((prediction - batch[1]) ** 2).mean() + 0.5 * (w1**2).sum() + 0.25 * (root**2).sum()
    torch.testing.assert_close(lifted(batch), expected)
    torch.testing.assert_close(lifted.penalty() + lifted.objective(batch), expected)


def test_chains_are_flat_and_need_lifts() -> None:
    assert chain(chain(SoftMask(), Expand()), SoftMask()) == LiftChain((SoftMask(), Expand(), SoftMask()))
    with pytest.raises(TorchliftError, match="one or more lifts"):
        chain()


def test_projecting_out_of_order_raises() -> None:
    task, _ = build("mlp")
    lifted = chain(SoftMask(), Expand(where="*weight")).lift(task)
    with pytest.raises(OrderError, match="reverse order"):
        SoftMask().project(lifted)
    with pytest.raises(OrderError, match="reverse order"):
        SoftMask().project(task)
    with pytest.raises(OrderError, match="project only once"):
        Lifter("2").project(task)


def test_module_lifts_come_before_weight_lifts() -> None:
    task, _ = build("mlp")
    with pytest.raises(OrderError, match="before weight lifts"):
        Lifter("2").lift(SoftMask().lift(task))
    with pytest.raises(OrderError, match=r"nn\.Sequential"):
        Auxiliary(torch.zeros(2, 4)).lift(build("lstm")[0])


def test_a_learning_projection_without_fit_says_so() -> None:
    task, _ = build("mlp")
    with pytest.raises(NeedsFitError, match="project\\(problem, fit\\)"):
        Lifter("2").project(Lifter("2").lift(task))


def test_unknown_names_get_near_matches() -> None:
    task, _ = build("attention")
    with pytest.raises(SelectionError, match="enter"):
        Lifter("entre").lift(task)
    with pytest.raises(SelectionError, match=r"Close: head\.weight"):
        SoftMask(where="hed.weight").lift(task)
    assert select(named(task), "head.*", "test") == ["model.head.weight", "model.head.bias"]


class Twice(nn.Module):
    """A user's own module called ``base``, with a layer of the same name as one outside."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.ModuleDict({"fc": nn.Linear(4, 4)})
        self.fc = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.base["fc"](x))


def test_names_are_the_users_and_nobody_elses() -> None:
    task = Task(Twice())
    lifted = SoftMask(where="fc.weight").lift(task)
    assert list(lifted.nodes) == ["model/fc/weight"]
    assert [name.label for name in named(lifted)] == [
        "base.fc.weight",
        "base.fc.bias",
        "fc.bias",
        "fc.weight",
        "fc.weight.switches.logit",
    ]
    inside = Lifter("base.fc", width=2).lift(task)
    assert "base.fc.weight" in {name.label for name in named(inside)}
    assert list(SoftMask(where="base.fc.weight").lift(inside).nodes) == ["model/base/fc/inner/weight"]


def test_past_the_wrapper_a_lifted_weight_is_a_hole() -> None:
    task, batch = build("mlp")
    lifted = SoftMask().lift(task)
    with pytest.raises(TypeError):
        lifted.base.model(batch[0])


def test_dials_turn_geometrically_and_linearly_and_frozen_ones_do_not() -> None:
    geometric, linear = Dial(1.0, 100.0), Dial(1.0, 0.0, scale="linear")
    kept = Frozen(nn.ModuleList([Dial(1.0, 2.0)]))
    anneal(nn.ModuleList([geometric, linear, kept]), 0.5)
    assert geometric().item() == pytest.approx(10.0)
    assert linear().item() == pytest.approx(0.5)
    assert kept.module[0]().item() == 1.0


def test_frozen_stays_in_evaluation_mode_without_gradients() -> None:
    frozen = Frozen(nn.Sequential(nn.Linear(2, 2), nn.Dropout()))
    frozen.train()
    assert not frozen.module.training
    assert not any(p.requires_grad for p in frozen.parameters())


def test_groups_first_match_wins_nodes_have_their_say_and_strays_are_errors() -> None:
    task, _ = build("mlp")
    lifted = Squared().lift(task)
    options = groups(lifted, {"*bias": {"lr": 1.0}, "*": {}})
    assert {len(g["params"]) for g in options} == {3}
    by_options = {tuple(sorted(k for k in g if k != "params")): g for g in options}
    assert set(by_options) == {("lr",), ("lr_factor", "weight_decay")}
    overridden = groups(lifted, {"*root": {"weight_decay": 0.1}, "*": {}})
    assert overridden[-1]["weight_decay"] == 0.1 or overridden[0]["weight_decay"] == 0.1
    with pytest.raises(SelectionError, match="no glob fits"):
        groups(lifted, {"0.bias": {}})
    with pytest.raises(SelectionError, match="matches nothing"):
        groups(lifted, {"*nothing": {}, "*": {}})


def test_original_parameters_are_the_users_not_the_lifts() -> None:
    task, _ = build("mlp")
    lifted = chain(Lifter("2", width=4), SoftMask(where="0.weight")).lift(task)
    names = set(original_parameters(lifted))
    assert "base.model.2.inner.weight" in names
    assert not any("lifter" in name or "logit" in name for name in names)


def test_shared_modules_are_lifted_everywhere_they_stand() -> None:
    shared = nn.Linear(4, 4)
    model = nn.Sequential(shared, nn.Tanh(), shared)
    lift = Lifter("0", kind="linear", width=2)
    lifted = lift.lift(Task(model, "mse"))
    assert lifted.model[0] is lifted.model[2]
    back = lift.project(lifted)
    assert back.model[0] is back.model[2]
    assert type(back.model[0]) is nn.Linear


def test_nodes_answer_for_the_module_they_wrap() -> None:
    task, _ = build("conv")
    lifted = Lifter("3", kind="conv", width=2).lift(task)
    assert lifted.model[3].stride == (2, 2)
    with pytest.raises(AttributeError):
        lifted.model[3].no_such_attribute


def test_lifts_are_values() -> None:
    assert SoftMask() == SoftMask()
    assert copy.deepcopy(Lifter("2")) == Lifter("2")
    with pytest.raises(dataclasses.FrozenInstanceError):
        SoftMask().where = "x"


def test_exact_merges_land_exactly() -> None:
    task, batch = build("mlp")
    lands(Expand(rank=0.5), task, batch, bound=1e-6)
    lands(Lifter("2", kind="linear", width=4), task, batch, bound=1e-6)


def test_losses_by_name_say_what_they_cannot_take() -> None:
    with pytest.raises(DataError, match="not known"):
        Task(nn.Linear(2, 2), "crossentropy")
    regression = Task(nn.Linear(2, 1), "mse")
    x, y = torch.randn(4, 2), torch.randn(4)
    expected = ((regression.model(x).squeeze(1) - y) ** 2).mean()
    torch.testing.assert_close(regression((x, y)), expected)
    with pytest.raises(DataError, match="one shape"):
        regression((x, torch.randn(3, 2)))
    with pytest.raises(DataError, match="target"):
        regression({"x": x})


def test_dict_batches_and_sequence_targets() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 5)

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.table(input_ids)

    task = Task(Named(), "cross_entropy")
    tokens = torch.randint(0, 5, (3, 4))
    loss = task({"input_ids": tokens, "labels": tokens})
    flat = nn.functional.cross_entropy(task.model(tokens).flatten(0, 1), tokens.flatten())
    torch.testing.assert_close(loss, flat)


def test_dials_are_as_exact_as_a_double_model_whatever_it_is_cast_to() -> None:
    dial = Dial(1.0, 200.0)
    module = nn.ModuleList([dial, nn.Linear(2, 2)]).float()
    anneal(module, 1 / 3)
    assert dial.value.dtype == torch.float64
    assert dial().item() == pytest.approx(200 ** (1 / 3), rel=1e-15)
    assert (dial() * torch.ones(2)).dtype == torch.float32
    assert copy.deepcopy(module).half()[0].value.dtype == torch.float64


def test_a_penalty_counts_a_node_once_however_often_it_is_used() -> None:
    node = Square(torch.full((2, 2), 2.0), 1.0)
    shared = nn.Sequential(node, nn.ReLU(), node)
    assert float(penalty(shared).detach()) == float(node.penalty().detach())
