"""Records of grids and masks: what they hold, and when they are dropped."""

import copy
import pickle
import warnings
from functools import partial

import pytest
import torch
from torch import nn

import torchlift as tl
from cases import build
from torchlift import stored
from torchlift.core import Task, groups, masked_weights, masks_of, record_pruned, store
from torchlift.core.stored import forget, levels_of, load_record_state, record_state, scale_rows
from torchlift.errors import TorchliftError
from torchlift.lifts import Expand, Rotate, SoftMask
from torchlift.testing import LAWS

LEVELS = torch.tensor([[3, 0, -1, 5], [2, -4, 0, 1], [0, 1, 7, -8]])
ROWS = torch.tensor([[0.1], [0.3], [0.7]])

OPTIMIZERS = [
    partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    partial(torch.optim.Adam, lr=0.1, weight_decay=0.1),
    partial(torch.optim.AdamW, lr=0.1),
    partial(torch.optim.RMSprop, lr=0.1, momentum=0.9),
    partial(torch.optim.Adagrad, lr=0.1),
]


def layer() -> nn.Linear:
    """A layer with a record of both kinds."""
    linear = nn.Linear(4, 3)
    store(linear, "weight", step=ROWS, levels=LEVELS, kept=LEVELS != 0)
    return linear


def same(one: tl.core.Stored, other: tl.core.Stored) -> bool:
    return all(torch.equal(getattr(one, key), getattr(other, key)) for key in ("levels", "step", "kept"))


def test_levels_steps_and_masks_are_read_back():
    record = stored(layer())["weight"]
    assert torch.equal(record.levels, LEVELS.int())
    assert torch.equal(record.step, ROWS)
    assert torch.equal(record.kept, LEVELS != 0)
    assert record.bits == 4
    assert torch.equal(layer().weight, ROWS * LEVELS)


def test_a_record_is_carried_along_and_is_not_in_the_state_dict():
    model, plain = layer(), nn.Linear(4, 3)
    first = stored(model)["weight"]
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model.to("cpu")):
        assert same(stored(twin)["weight"], first)
    assert stored(copy.deepcopy(model).to("meta"))["weight"].levels.shape == LEVELS.shape
    assert list(model.state_dict()) == list(plain.state_dict())
    plain.load_state_dict(model.state_dict(), strict=True)
    assert not stored(plain)
    model.load_state_dict(plain.state_dict(), strict=True)
    assert same(stored(model)["weight"], first)


@pytest.mark.parametrize("kind", ["grid", "mask"])
def test_what_no_longer_holds_is_dropped_with_one_warning(kind: str):
    model = layer()
    with torch.no_grad():
        model.weight[0, 0 if kind == "grid" else 1] += 0.1 if kind == "mask" else 0.01
    with pytest.warns(UserWarning, match=r"weight: changed since it was pruned or quantized") as said:
        record = stored(model).get("weight")
    assert len(said) == 1
    assert record is not None
    assert (record.step is None, record.kept is None) == ((True, False) if kind == "grid" else (False, True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stored(model)


def test_a_tied_weight_has_one_record_under_each_name():
    model = nn.Sequential(layer(), nn.Linear(4, 3))
    model[1].weight = model[0].weight
    assert list(stored(model)) == ["0.weight", "1.weight"]
    assert len(masked_weights(model)) == 1
    store(model, "1.weight", kept=LEVELS > 0)
    assert torch.equal(stored(model)["0.weight"].kept, LEVELS > 0)
    forget(model, "0.weight")
    assert not stored(model)


def test_a_step_that_does_not_fit_is_an_error():
    with pytest.raises(TorchliftError, match="not on the grid"):
        store(nn.Linear(4, 3), "weight", step=ROWS)
    with pytest.raises(TorchliftError, match="does not fit a weight"):
        store(nn.Linear(4, 3), "weight", step=torch.ones(2, 1), levels=LEVELS)


def test_blocks_have_steps_of_their_own():
    model, step = nn.Linear(4, 6), torch.rand(3, 2)
    levels = torch.randint(-7, 8, (6, 4))
    store(model, "weight", step=step, levels=levels)
    assert torch.equal(model.weight[2, 3], step[1, 1] * levels[2, 3])
    assert torch.equal(levels_of(model.weight, step), levels.int())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_scaling_rows_is_exact_and_leaves_levels_and_mask(dtype: torch.dtype):
    model = layer().to(dtype) if dtype == torch.float32 else nn.Linear(4, 3).to(dtype)
    store(model, "weight", step=ROWS.to(dtype), levels=LEVELS, kept=LEVELS != 0)
    factor = torch.tensor([1.7, -0.3, 1e-3], dtype=dtype)
    scale_rows(model, "weight", factor)
    record = stored(model)["weight"]
    assert torch.equal(record.levels, LEVELS.int())
    assert torch.equal(record.kept, LEVELS != 0)
    assert torch.equal(record.step, ROWS.to(dtype) * factor[:, None])
    assert torch.equal(model.weight, (record.step * LEVELS).to(dtype))


def test_a_checkpoint_restores_records_and_drops_others():
    model, other = layer(), nn.Linear(4, 3)
    store(other, "bias", kept=torch.tensor([True, False, True]))
    other.load_state_dict(model.state_dict())
    load_record_state(other, record_state(model))
    assert list(stored(other)) == ["weight"]
    assert same(stored(other)["weight"], stored(model)["weight"])


def pruned() -> Task:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    with torch.no_grad():
        model[0].weight[torch.rand(6, 4) < 0.5] = 0
        nn.init.zeros_(model[3].weight)
    task = Task(model, "mse")
    assert record_pruned(task) == ["model.0.weight"]  # all zero is an initialization, not a pruning
    return task


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_in_ones_own_loop_constrain_holds_the_mask(make):
    task = pruned()
    start = task.model[0].weight.detach().clone()
    optimizer = make(groups(task, {"*": {}}))
    for _ in range(10):
        optimizer.zero_grad()
        task((torch.randn(16, 4), torch.randn(16, 3))).backward()
        optimizer.step()
        tl.constrain(task)
    assert torch.equal(task.model[0].weight == 0, start == 0)
    assert not torch.equal(task.model[0].weight, start)
    assert bool((task.model[3].weight != 0).all())


def test_constrain_holds_masks_and_grids_after_a_round_trip_of_the_state_dict():
    """837 zeros had become 412 in five steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 2))
    lift = tl.chain(SoftMask("0.weight", sparsity=0.7), tl.lifts.Precision("2.weight", p_init=4))
    task = lift.project(lift.lift(Task(model)))
    before = tl.stored(task.model)
    task.model.load_state_dict(copy.deepcopy(task.model.state_dict()), strict=True)
    optimizer = torch.optim.SGD(task.parameters(), lr=0.05, momentum=0.9, weight_decay=0.1)
    x, y = torch.randn(64, 40), torch.arange(64) % 2
    for _ in range(5):
        optimizer.zero_grad()
        task((x, y)).backward()
        optimizer.step()
        tl.constrain(task.model)
    after = tl.stored(task.model)
    assert int((task.model[0].weight == 0).sum()) == 840
    assert torch.equal(before["0.weight"].kept, after["0.weight"].kept)
    assert torch.equal(before["2.weight"].step, after["2.weight"].step)


def test_masks_hold_under_other_lifts():
    """Whatever computes a weight with a mask, it is multiplied by it."""
    plain = pruned()
    kept = masks_of(plain)["model.0.weight"]
    for lift in (SoftMask(where="0.weight", s_init=0.2, variant="published"), Expand("0.weight"), Rotate()):
        lifted = lift.lift(plain)
        optimizer = torch.optim.SGD(lifted.parameters(), 0.1, momentum=0.9, weight_decay=0.1)
        for _ in range(3):
            lifted((torch.randn(4, 4), torch.randn(4, 3))).backward()
            optimizer.step()
        small = lift.project(lifted)
        assert not bool(small.model[0].weight[~kept].any()), lift
        assert not torch.equal(small.model[0].weight, plain.model[0].weight)
        assert bool((stored(small)["model.0.weight"].kept <= kept).all())


def test_a_data_parallel_wrap_carries_records(tmp_path):
    model = nn.Sequential(layer())
    first = stored(model)["0.weight"]
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(model)
        wrapped(torch.randn(2, 4)).sum().backward()
        assert same(stored(wrapped)["module.0.weight"], first)
    finally:
        torch.distributed.destroy_process_group()


def test_a_cut_takes_the_rows_and_columns_of_records_along():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    levels = torch.randint(1, 8, (6, 4))
    levels[2] = 0
    store(model, "0.weight", step=torch.rand(6, 1) + 0.1, levels=levels, kept=levels != 0)
    store(model, "2.weight", step=torch.tensor(0.1), levels=torch.randint(-7, 8, (3, 6)))
    with torch.no_grad():
        model[0].bias[2] = -1.0
    before = stored(model)
    small = tl.deploy.shrink(model, torch.randn(2, 4))
    rest = [0, 1, 3, 4, 5]
    assert small[0].out_features == 5
    after = stored(small)
    assert torch.equal(after["0.weight"].levels, before["0.weight"].levels[rest])
    assert torch.equal(after["0.weight"].step, before["0.weight"].step[rest])
    assert torch.equal(after["2.weight"].levels, before["2.weight"].levels[:, rest])


@pytest.mark.parametrize(
    "lift",
    [
        tl.lifts.HardConcrete(),
        tl.lifts.StochasticMask(),
        tl.chain(tl.lifts.Normalize(), tl.lifts.Precision(p_init=4)),
        tl.chain(SoftMask("0.weight", sparsity=0.5), tl.lifts.LearnedStep("2.weight")),
        tl.chain(SoftMask("*weight"), tl.lifts.Precision("nodes.*.weight", p_init=4)),
        tl.chain(tl.lifts.Standardize(), tl.lifts.DoReFa(bits=3)),
    ],
    ids=repr,
)
def test_the_law_of_records_on_what_has_no_row_of_its_own(lift):
    LAWS["records_what_it_projects"](lift, *build("mlp"))


def test_a_mask_over_a_grid_has_both():
    """Levels are those of the grid, zero where gates are closed."""
    task, _ = build("mlp")
    mask, bits = SoftMask("*weight", sparsity=0.5), tl.lifts.Precision("nodes.*.weight", p_init=4)
    gated = bits.project(bits.lift(mask.lift(task)))
    inner = stored(gated)["nodes.model/0/weight.weight"]
    outer = stored(mask.project(gated))["model.0.weight"]
    assert torch.equal(outer.step, inner.step)
    assert torch.equal(outer.levels, inner.levels * outer.kept)
    assert int(outer.kept.sum()) < int(inner.kept.sum())


def test_fit_save_and_load_of_a_chain_keeps_the_integers_of_training(tmp_path):
    """Folded norm and bits: the same levels, steps and masks in the result and read back from its file."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    x = torch.randn(96, 6)
    result = tl.fit(
        net,
        (x, (x[:, 0] > 0).long()),
        recipe=tl.recipes.Inside(tl.lifts.Normalize(), tl.recipes.Smol(bits=3.0)),
        epochs=4,
        progress=False,
    )
    first = result.stored
    assert first["0.weight"].step.shape == (8, 1)
    assert int(first["0.weight"].precision.max()) <= 8
    result.save(tmp_path / "m.tl")
    again = tl.stored(tl.deploy.load(tmp_path / "m.tl"))
    assert all(same(again[name], record) for name, record in first.items())
