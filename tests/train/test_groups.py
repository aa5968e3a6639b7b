"""Optimizer options reach what they name, in every recipe, or raise before anything is trained."""

import functools
import logging

import pytest
import torch
from torch import nn

import torchlift as tl
from every_recipe import RECIPES, data, model
from torchlift.errors import SelectionError
from torchlift.recipes import (
    Bsq,
    Chain,
    ContinuousSparsification,
    Inside,
    SequentialSparsification,
    Smol,
    TicketSearch,
)

OPTIONS: list[dict[float, int]] = []
"""For every optimizer that was made: how many entries have which weight decay."""


class Noted(torch.optim.SGD):
    def __init__(self, groups, **options):
        super().__init__(groups, **options)
        decays: dict[float, int] = {}
        for group in self.param_groups:
            entries = sum(p.numel() for p in group["params"])
            decays[group["weight_decay"]] = decays.get(group["weight_decay"], 0) + entries
        OPTIONS.append(decays)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


def run(recipe: object, groups: dict[str, dict[str, float]], **settings: object) -> list[dict[float, int]]:
    x = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
    OPTIONS.clear()
    tl.fit(
        net(), (x, (x[:, 0] > 0).long()), recipe=recipe, groups=groups, epochs=4, batch_size=32,
        optimizer=functools.partial(Noted, lr=1e-3), progress=False, **settings,
    )  # fmt: skip
    return OPTIONS


ENTRIES = sum(p.numel() for p in net().parameters())
MASKED = {
    "sparsification": ContinuousSparsification(sparsity=0.5),
    "tickets": TicketSearch(rounds=1, rewind=1, s_init=0.1),
    "sequential": SequentialSparsification(rounds=1),
    "smol": Smol(bits=4.0),
    "chain": Chain(ContinuousSparsification(sparsity=0.5), Smol(bits=4.0)),
    "inside": Inside(tl.lifts.Standardize(), ContinuousSparsification(sparsity=0.5)),
    "lift": tl.lifts.SoftMask(s_init=0.1),
}


@pytest.mark.filterwarnings("ignore:no weight was dropped")
@pytest.mark.parametrize("recipe", MASKED.values(), ids=MASKED)
def test_a_star_reaches_the_users_weights_in_every_fit_and_no_logit(recipe):
    for decays in run(recipe, {"*": {"weight_decay": 0.25}}):
        assert decays.pop(0.25) == ENTRIES
        assert set(decays) <= {0.0}


def test_planes_of_bits_are_coordinates_of_the_lift():
    for decays in run(Bsq(), {"*": {"weight_decay": 0.25}}):
        assert decays[0.25] in (ENTRIES, 10)  # while lifted, the biases are left of the user's


@pytest.mark.filterwarnings("ignore:no weight was dropped")
@pytest.mark.parametrize("name", ["sparsification", "tickets", "sequential", "chain", "lift"])
def test_a_glob_that_names_them_reaches_the_logits(name):
    groups = {"*logit": {"weight_decay": 0.5}, "2.*": {"weight_decay": 0.25}, "*": {}}
    seen = run(MASKED[name], groups)
    weights = sum(p.numel() for p in net().parameters() if p.ndim > 1)
    assert {decays.get(0.5, 0) for decays in seen} <= {0, weights}
    assert any(0.5 in decays for decays in seen)
    assert {decays[0.25] for decays in seen} == {18}


def test_an_option_that_the_optimizer_does_not_have_raises_before_training():
    """torch would keep it in the group and never read it."""
    x = torch.randn(8, 6)
    for optimizer, options, others in (
        (torch.optim.SGD, {"wieght_decay": 0.1}, "nesterov, optimizer, weight_decay"),
        (torch.optim.SGD, {"momentum": 0.9, "optimizer": torch.optim.Adam}, "amsgrad, betas"),
        (tl.optim.Muon, {"block": 2}, "betas, blocks"),
    ):
        with pytest.raises(SelectionError, match=f"has no option .*for '0.weight'.*{others}"):
            tl.fit(
                net(), (x, (x[:, 0] > 0).long()), groups={"0.weight": options, "*": {}}, epochs=1,
                optimizer=functools.partial(optimizer, lr=0.1), progress=False,
            )  # fmt: skip


def test_an_option_for_a_lifts_coordinates_is_one_of_their_optimizer():
    sgd, x = functools.partial(torch.optim.SGD, lr=0.1), torch.randn(8, 6)
    groups = {"*logit": {"betas": (0.5, 0.9)}, "*": {"momentum": 0.9}}  # Adam moves the logits
    data, lift = (x, (x[:, 0] > 0).long()), tl.lifts.Precision()
    tl.fit(net(), data, recipe=lift, groups=groups, optimizer=sgd, epochs=1, progress=False)


@pytest.mark.parametrize("name", MASKED)
def test_a_glob_that_nothing_has_raises_before_training(name):
    with pytest.raises(SelectionError, match="'\\*logits' matches nothing"):
        run(MASKED[name], {"*logits": {"lr_factor": 2.0}, "*": {}})
    assert not OPTIONS
    with pytest.raises(SelectionError, match="no glob fits"):
        run(MASKED[name], {"2.*": {"lr_factor": 2.0}})
    assert not OPTIONS


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "a function"])
def test_every_recipe_rejects_a_glob_that_nothing_has(name):
    settings = {"epochs": 2, "batch_size": 32, "progress": False}
    with pytest.raises(SelectionError, match="'nothing' matches nothing"):
        tl.fit(model(), data(1), recipe=RECIPES[name], groups={"nothing": {}, "*": {}}, **settings)


def test_a_plain_run_has_no_logits():
    with pytest.raises(SelectionError, match="matches nothing"):
        run(None, {"*logit": {"lr_factor": 2.0}, "*": {}})


def test_weights_keep_their_names_in_any_coordinates():
    """``0.weight`` is the user's name for what the optimizer holds as ``nodes.0/weight.parts.0``."""
    for lift in (tl.lifts.Split("*", 2), tl.lifts.Expand(), tl.lifts.SoftMask()):
        lifted = lift.lift(tl.Task(net(), "cross_entropy"))
        groups = tl.groups(lifted, {"0.weight": {"weight_decay": 0.25}, "*": {}})
        reached = sum(p.numel() for g in groups if g.get("weight_decay") == 0.25 for p in g["params"])
        assert reached == 48


def test_what_a_function_had_no_parameter_for_is_said(caplog):
    def plain(task: tl.Task, fit: object) -> tl.Task:
        fit(task)
        return task

    with caplog.at_level(logging.WARNING, "torchlift"):
        run(plain, {"*logit": {"lr_factor": 2.0}, "*": {}})
    assert "no fit had a parameter for '*logit'" in caplog.text


@pytest.mark.parametrize(("eps", "want"), [(1e-3, {1e-3, 1e-8}), (1e-5, {1e-5, 1e-8}), (None, {1e-8})])
def test_the_masks_eps_is_an_option(eps, want):
    lifted = tl.lifts.SoftMask(eps=eps).lift(tl.Task(net(), "cross_entropy"))
    optimizer = torch.optim.Adam(tl.groups(lifted, {"*": {}}))
    assert {group["eps"] for group in optimizer.param_groups} == want
