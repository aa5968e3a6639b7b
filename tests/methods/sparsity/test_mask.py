"""Soft masks: closed forms of the gates, trajectories, granularities, ties."""

import copy
import math
import sys
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from torchlift.core import Task, anneal, groups, original_parameters
from torchlift.errors import SelectionError, TorchliftError
from torchlift.lifts import SoftMask
from torchlift.methods.sparsity import gates
from torchlift.methods.sparsity.switches import switches
from torchlift.recipes import ContinuousSparsification

CLOSED = {
    "sigmoid": lambda beta, s: 1 / (1 + math.exp(-beta * s)),
    "erf": lambda beta, s: 0.5 * (1 + math.erf(beta * s)),
    "algebraic": lambda beta, s: 0.5 * (1 + s / (1 / beta + abs(s) ** 2) ** 0.5),
    "arctan": lambda beta, s: 0.5 * (1 + 2 / math.pi * math.atan(beta * s)),
}


def double(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def task(seed: int = 0) -> Task:
    torch.manual_seed(seed)
    return Task(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double(), "mse")


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(8, 4).double(), torch.randn(8, 3).double()


@pytest.mark.parametrize("gate", gates.SHAPES)
@given(beta=st.floats(1, 500), s=st.floats(-1, 1))
@settings(max_examples=30, deadline=None)
def test_gates_have_their_closed_form_and_tend_to_the_step(gate, beta, s):
    value = gates.soft(gate, double(beta), double(s))
    assert float(value) == pytest.approx(CLOSED[gate](beta, s), abs=1e-12)
    assert 0 <= float(value) <= 1
    if abs(s) > 1e-3:
        sharp = gates.soft(gate, double(1e9), double(s))
        assert float(sharp) == pytest.approx(float(s > 0), abs=1e-3)


@pytest.mark.parametrize("gate", gates.SHAPES)
def test_gradients_of_gates_are_right(gate):
    s = torch.linspace(-1, 1, 7).double().requires_grad_()
    torch.autograd.gradcheck(lambda s: gates.soft(gate, torch.tensor(3.0).double(), s), s)


@pytest.mark.parametrize("gate", gates.SHAPES)
def test_variants_start_where_they_say(gate):
    plain, x = task(), batch()[0]
    published = SoftMask(s_init=-0.3, gate=gate, variant="published")
    assert published.preserving
    assert_close(published.lift(plain).predict(x), plain.predict(x))
    thesis = SoftMask(s_init=-0.3, gate=gate)
    assert not thesis.preserving
    lifted = thesis.lift(plain)
    factor = CLOSED[gate](1.0, -0.3)
    assert_close(lifted.nodes["model/0/weight"](), factor * plain.model[0].weight)


def test_penalty_is_the_l1_norm_of_the_gates_with_the_published_factor():
    for variant, factor in (("thesis", 1.0), ("published", 1 / CLOSED["sigmoid"](1.0, -0.2))):
        lifted = SoftMask(s_init=-0.2, strength=0.01, variant=variant).lift(task())
        assert lifted.penalty().item() == pytest.approx(0.01 * 42 * factor * CLOSED["sigmoid"](1.0, -0.2))


def test_ties_are_kept_by_the_thesis_and_dropped_as_published():
    for variant, kept in (("thesis", 42), ("published", 0)):
        mask = SoftMask(s_init=0.0, variant=variant)
        model = mask.project(mask.lift(task())).model
        assert int((model[0].weight != 0).sum() + (model[2].weight != 0).sum()) == kept


def test_hard_weights_of_the_published_variant_carry_its_factor():
    mask = SoftMask(s_init=-0.5, variant="published")
    lifted = mask.lift(task())
    node = lifted.nodes["model/0/weight"]
    with torch.no_grad():
        node.logit[0] = 1.0
    hard = mask.project(lifted).model[0].weight
    assert_close(hard[0], task().model[0].weight[0] / CLOSED["sigmoid"](1.0, -0.5))
    assert not hard[1:].any()


def test_beta_by_step_and_by_epoch():
    by_step = SoftMask(beta_final=200.0).lift(task())
    by_epoch = SoftMask(beta_final=200.0, levels=5).lift(task())
    steps = 50
    for step in range(steps + 1):
        anneal(by_step, step / steps)
        anneal(by_epoch, step / steps)
        epoch = min(step // 10, 4)
        (first, _), (second, _) = (tuple(switches(p).values()) for p in (by_step, by_epoch))
        assert float(first.beta()) == pytest.approx(200 ** (step / steps), rel=1e-5)
        assert float(second.beta()) == pytest.approx(200 ** (epoch / 4), rel=1e-5)


def test_no_weight_decay_on_logits():
    lifted = SoftMask().lift(task())
    logits = {id(s.logit) for s in switches(lifted).values()}
    own = groups(lifted, {"*": {}})
    assert {id(p) for g in own if g.get("weight_decay") == 0.0 for p in g["params"]} == logits


@pytest.mark.parametrize(
    ("options", "shapes"),
    [
        ({"granularity": "weight"}, [(6, 4), (3, 6)]),
        ({"granularity": "channel"}, [(6, 1), (3, 1)]),
        ({"granularity": "head", "size": 3}, [(2, 1), (1, 1)]),
        ({"granularity": "block", "size": 4}, [(2, 1), (1, 2)]),
    ],
)
def test_granularities_have_one_logit_per_tile(options, shapes):
    lifted = SoftMask(**options, s_init=0.1).lift(task())
    assert [tuple(s.logit.shape) for s in switches(lifted).values()] == shapes


def test_blocks_close_together_even_where_they_do_not_divide():
    mask = SoftMask(granularity="block", size=4, s_init=0.1)
    lifted = mask.lift(task())
    with torch.no_grad():
        switches(lifted)["model.0.weight"].logit[1] = -1.0
    hard = mask.project(lifted).model[0].weight
    assert bool((hard[:4] != 0).all())
    assert not hard[4:].any()


def test_groups_share_their_gates_and_pay_once():
    groups_ = {"hidden": {"0.weight": 0, "0.bias": 0, "2.weight": 1}}
    mask = SoftMask(where="*", granularity=groups_, s_init=0.2, strength=1.0)
    lifted = mask.lift(task())
    (switch,) = switches(lifted).values()
    assert switch.logit.numel() == 6
    assert lifted.penalty().item() == pytest.approx(6 * CLOSED["sigmoid"](1.0, 0.2))
    with torch.no_grad():
        switch.logit.view(-1)[2] = -1.0
    model = mask.project(lifted).model
    assert not model[0].weight[2].any()
    assert not model[0].bias[2].any()
    assert not model[2].weight[:, 2].any()
    assert int((model[2].weight != 0).sum()) == 15


def test_groups_of_unequal_size_raise():
    mask = SoftMask(where="*", granularity={"g": {"0.weight": 0, "2.weight": 0}})
    with pytest.raises(TorchliftError, match="check the dimension"):
        mask.lift(task())


def test_a_layer_is_never_wiped_out_by_channels():
    mask = SoftMask(granularity="channel", s_init=-0.1)
    lifted = mask.lift(task())
    with torch.no_grad():
        switches(lifted)["model.0.weight"].logit[3] = -0.01
    with pytest.warns(UserWarning, match="best one is kept"):
        model = mask.project(lifted).model
    assert model[0].weight.abs().sum(1).nonzero().flatten().tolist() == [3]


def test_supermasks_leave_the_weights_alone():
    plain = task()
    mask = SoftMask(frozen=True, s_init=0.1)
    lifted = mask.lift(plain)
    optimizer = torch.optim.SGD([p for p in lifted.parameters() if p.requires_grad], lr=10.0)
    for _ in range(5):
        optimizer.zero_grad()
        lifted(batch()).backward()
        optimizer.step()
    hard = mask.project(lifted).model[0].weight
    kept = hard != 0
    assert 0 < int(kept.sum()) < 24
    assert torch.equal(hard[kept], plain.model[0].weight[kept])


def test_the_kept_set_is_an_upper_set_in_size():
    """On |w − a|²/2, mask and weights learned together keep the largest |a|."""
    torch.manual_seed(0)
    a = torch.randn(12, 1).double()
    problem = Task(nn.Linear(1, 12, bias=False).double(), lambda m, _: 0.5 * (m.weight - a).square().sum())
    nn.init.normal_(problem.model.weight, std=0.1)
    mask = SoftMask(strength=0.3, s_init=0.05)
    lifted = mask.lift(problem)
    optimizer = torch.optim.SGD(lifted.parameters(), lr=0.05)
    for step in range(600):
        anneal(lifted, step / 600)
        optimizer.zero_grad()
        lifted(None).backward()
        optimizer.step()
    kept = mask.project(lifted).model.weight != 0
    assert 0 < int(kept.sum()) < 12
    assert float(a[kept].abs().min()) > float(a[~kept].abs().max())


def test_lift_and_project_are_pure_and_copies_are_free():
    plain = task()
    before = copy.deepcopy(plain.state_dict())
    mask = SoftMask(s_init=0.1)
    lifted = mask.lift(plain)
    small = mask.project(copy.deepcopy(lifted))
    assert all(torch.equal(v, before[k]) for k, v in plain.state_dict().items())
    assert list(small.state_dict()) == list(before)
    assert sorted(original_parameters(lifted)) == sorted(
        [
            "base.model.0.bias",
            "base.model.2.bias",
        ]
    )
    lifted(batch()).backward()


def test_skip_and_unknown_names_are_told():
    lifted = SoftMask(skip="2.*").lift(task())
    assert list(switches(lifted)) == ["model.0.weight"]
    with pytest.raises(SelectionError, match="matches nothing"):
        SoftMask(where="*conv*").lift(task())
    for wrong in ({"gate": "step"}, {"variant": "x"}, {"granularity": "row"}, {"granularity": "head"}):
        with pytest.raises(TorchliftError):
            SoftMask(**wrong)


def test_lowest_drops_exactly_the_amount_and_breaks_ties_by_the_second_key():
    scores = torch.tensor([0.0, 0.0, 0.0, -1.0])
    dropped = gates.lowest_scores(scores, torch.tensor([3.0, 1.0, 2.0, 9.0]), torch.ones(4), 2)
    assert dropped.tolist() == [False, True, False, True]
    weighted = gates.lowest_scores(torch.arange(3.0), torch.zeros(3), torch.tensor([5.0, 5.0, 5.0]), 8)
    assert weighted.tolist() == [True, True, False]


def test_gather_is_the_transpose_of_spread():
    shape, grain = (5, 7, 3), (2, 3, 3)
    values = torch.randn(gates.tiles(shape, grain)).double()
    entries = torch.randn(shape).double()
    left = (gates.spread_tiles(values, shape, grain).expand(shape) * entries).sum()
    assert_close(left, (values * gates.tile_sums(entries, grain)).sum())


def test_no_warning_when_all_is_well():
    mask = SoftMask(granularity="channel", s_init=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mask.project(mask.lift(task()))


def test_lifting_costs_in_proportion_to_the_modules():
    """Calls of Python functions, counted: once every module looked through all others."""

    def calls(modules: int) -> int:
        task = Task(nn.Sequential(*(nn.Linear(2, 2) for _ in range(modules))), "mse")
        count = 0

        def note(frame, event, argument):
            nonlocal count
            count += event == "call"

        sys.setprofile(note)
        try:
            SoftMask().lift(task)
        finally:
            sys.setprofile(None)
        return count

    calls(2)
    assert calls(240) < 2.2 * calls(120)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=4, max_size=9), st.integers(0, 1), st.integers(0, 1000))
def test_gathering_is_the_transpose_of_spreading(index, dim, seed):
    index = [*index, 0, 1, 2, 3]  # every gate has a slice
    torch.manual_seed(seed)
    shape = (len(index), 3) if dim == 0 else (3, len(index))
    grain = gates.Slices(dim, tuple(index))
    values, entries = torch.randn(4).double(), torch.randn(shape).double()
    spread = gates.spread_tiles(values, shape, grain)
    assert gates.tiles(shape, grain) == (4,)
    assert_close((spread * entries).sum(), (values * gates.tile_sums(entries, grain)).sum())


def test_a_closed_gate_takes_all_its_slices_in_all_its_weights():
    torch.manual_seed(0)
    task = Task(nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 1)), "mse")
    groups = {"heads": {"*0.weight": (0, (0, 1, 2, 0, 1, 2)), "*0.bias": (0, (0, 1, 2, 0, 1, 2))}}
    mask = SoftMask(where="*", granularity=groups)
    lifted = mask.lift(task)
    (switch,) = switches(lifted).values()
    with torch.no_grad():
        switch.logit.copy_(torch.tensor([1.0, -1.0, 1.0]))
    plain = mask.project(lifted).model
    assert (plain[0].weight == 0).all(1).tolist() == [False, True, False, False, True, False]
    assert (plain[0].bias == 0).tolist() == [False, True, False, False, True, False]


def test_rounding_keeps_the_best():
    scores = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
    dropped = torch.tensor([False, False, False, False, True, True])
    assert gates.rounded_drops(dropped, scores, 3).tolist() == [False, False, False, True, True, True]
    assert gates.rounded_drops(~torch.eye(6, dtype=torch.bool)[5], scores, 2).tolist() == [
        False,
        *[True] * 4,
        False,
    ]
    assert torch.equal(gates.rounded_drops(dropped, scores, 4), dropped)  # six is no multiple of four
    with pytest.raises(TorchliftError, match="round_to"):
        ContinuousSparsification(round_to=4)
