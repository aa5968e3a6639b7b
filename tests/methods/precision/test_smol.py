"""SMOL as a recipe: targets and what is achieved, optimizers, chains that keep zeros, resuming, errors."""

import warnings
from functools import partial

import pytest
import torch

import torchlift as tl
from methods.sparsity.sparse_runs import SGD, data, model, run
from torchlift.core import Task, nodes
from torchlift.errors import TorchliftError
from torchlift.lifts import KeepGrid, Precision, precision
from torchlift.recipes import Bsq, Chain, ContinuousSparsification, Smol


def chosen(net):
    return [p for p in net.parameters() if p.ndim > 1]


def precisions(net) -> list[torch.Tensor]:
    return [tl.stored(net)[name].precision for name, w in net.named_parameters() if w.ndim > 1]


def bits_of(net) -> float:
    actual = precisions(net)
    return sum(int(p.sum()) for p in actual) / sum(p.numel() for p in actual)


@pytest.mark.parametrize("bits", [1.5, 3.0])
def test_the_asked_bits_are_got_and_told(bits):
    result = run(Smol(bits=bits))
    row = result.history[-1]
    assert row["bits_target"] == bits
    assert row["bits"] == pytest.approx(bits, abs=0.02)
    assert row["bits"] <= bits
    assert bits_of(result.model) <= row["bits"] + 1e-6  # a grid read from values is the least that holds them
    assert [r["phase"] for r in result.history] == ["noise"] * 3 + ["finetune"] * 3
    assert result.cost == pytest.approx(6.0, rel=0.01)


def test_the_file_is_not_above_its_bytes(tmp_path):
    target = 0.85 * saved_bytes(run(None), tmp_path / "dense.tl")
    result = run(Smol(bytes=target))
    row = result.history[-1]
    assert row["bytes_target"] == target
    assert row["bytes"] == pytest.approx(target, rel=0.05)
    saved = saved_bytes(result, tmp_path / "small.tl")
    assert row["bytes"] == pytest.approx(saved, rel=0.05)
    assert saved <= target


def saved_bytes(result, path) -> int:
    """The file a run delivers, with its card."""
    result.save(path)
    return path.stat().st_size


@pytest.mark.parametrize("granularity", ["weight", "tensor"])
@pytest.mark.parametrize("zeros", ["held", "moving"])
def test_targets_below_one_bit_are_met_by_zeros(granularity, zeros, tmp_path):
    """The smallest weights go, and stay away while the others are fine-tuned."""
    result = run(Smol(bits=0.2, granularity=granularity, zeros=zeros))
    assert 0.15 < bits_of(result.model) <= 0.2
    target = saved_bytes(result, tmp_path / "one.tl")  # less than one bit each, then
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small = run(Smol(bytes=target, granularity=granularity, zeros=zeros))
    actual = saved_bytes(small, tmp_path / "other.tl")
    assert actual <= (target if zeros == "held" else 1.05 * target)  # moving: as many zeros as before


def test_the_noisy_phase_keeps_its_last_weights_not_the_best_which_have_the_most_bits():
    result = run(Smol(strength=1e-1), keep="best")
    noise = [row["bits"] for row in result.history if row["phase"] == "noise"]
    assert noise[0] > noise[-1] + 0.5
    assert result.history[-1]["bits"] == pytest.approx(noise[-1], abs=1e-6)


def test_without_a_target_the_strength_decides():
    light, heavy = (run(Smol(strength=s)).history[-1]["bits"] for s in (1e-6, 1e-1))
    assert heavy < light - 1
    assert "bits_target" not in run(Smol(strength=1e-6), epochs=2).history[-1]


@pytest.mark.parametrize("granularity", ["block", "channel", "tensor"])
def test_groups_share_their_bits(granularity):
    result = run(Smol(bits=4, granularity=granularity, size=8, zero=False))
    assert 3 <= result.history[-1]["bits"] <= 4
    if granularity == "tensor":
        assert all(len(p.unique()) == 1 for p in precisions(result.model))


def test_hardware_bits_on_blocks():
    lift = Precision(granularity="block", size=8, levels=(1, 2, 4, 8))
    lifted = lift.lift(Task(model()))
    with torch.no_grad():
        for _, node in nodes(lifted):
            node.logit.uniform_(-5, 2)
    assert {int(p) for _, node in nodes(lifted) for p in node.precision().unique()} <= {0, 1, 2, 4, 8}


def test_logits_have_adam_without_decay_beside_the_runs_optimizer():
    """The price pushes a logit up by Adam's rate in every step; a decay would pull it down."""
    lift, ends = Precision(p_init=1.2, strength=1e-2), list[tuple[torch.Tensor, torch.Tensor]]()

    def recipe(task, fit):
        lifted = lift.lift(task)
        fit(lifted, name="noise", clip=None)
        ends.extend((node.logit.detach(), node.weight.detach()) for _, node in nodes(lifted))
        return lift.project(lifted)

    still = partial(torch.optim.SGD, lr=0.0, weight_decay=0.1)
    run(recipe, epochs=5, optimizer=still, loss=lambda net, batch: 0 * net(batch[0]).sum())
    steps, start = 5 * 4, precision.logit(1.2)
    for (logit, weight), before in zip(ends, chosen(model()), strict=True):
        assert torch.equal(weight, before)
        torch.testing.assert_close(logit - start, torch.full_like(logit, steps * 1e-3), rtol=0.02, atol=0)


def test_a_chain_of_zeros_and_bits_keeps_the_zeros():
    recipe = Chain({"prune": ContinuousSparsification(sparsity=0.7), "bits": Smol(bits=1.0)})
    seen = {}

    def spy(row):
        seen[row["phase"]] = row

    result = run(recipe, epochs=12, listener=spy)
    zeros = sum(int((w == 0).sum()) for w in chosen(result.model)) / sum(
        w.numel() for w in chosen(result.model)
    )
    assert seen["prune: finetune"]["sparsity"] == pytest.approx(0.7, abs=0.01)
    assert zeros >= 0.7
    first = precisions(result.model)
    again = tl.fit(
        result.model, data(), recipe=KeepGrid(), optimizer=SGD, epochs=2, batch_size=64, progress=False
    )
    for bits, after in zip(first, chosen(again.model), strict=True):
        assert torch.equal(bits == 0, after == 0)


def test_pruned_entries_stay_zero_in_every_step():
    recipe = Chain({"prune": ContinuousSparsification(sparsity=0.6), "bits": Smol(bits=2.0, zero=False)})
    result = run(recipe, epochs=8)
    zeros = sum(int((w == 0).sum()) for w in chosen(result.model)) / sum(
        w.numel() for w in chosen(result.model)
    )
    assert zeros == pytest.approx(0.6, abs=0.01)


def test_interrupted_between_its_phases_it_goes_on_to_the_same_bits(tmp_path):
    class Stop(Exception):
        pass

    def stop(row):
        if row["phase"] == "finetune":
            raise Stop

    whole = run(Smol(bits=2))
    with pytest.raises(Stop):
        run(Smol(bits=2), out=tmp_path, listener=stop)
    resumed = run(Smol(bits=2), out=tmp_path, resume=True)
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert resumed.history[-1]["bits"] == whole.history[-1]["bits"]


def test_activations_are_on_their_grid_while_the_weights_are_tuned(tmp_path):
    result = run(Smol(bits=4, activations=True))
    kinds = [type(m).__name__ for m in result.model.modules()]
    assert "GridActivation" in kinds
    assert not list(nodes(result.model))
    tl.deploy.save(result.model, tmp_path / "m.tl")
    x = data(16)[0]
    assert torch.equal(tl.deploy.load(tmp_path / "m.tl")(x), result.model(x))


def test_bit_planes_then_levels():
    result = run(Bsq(strength=1e-3), epochs=4)
    assert [r["phase"] for r in result.history] == ["planes"] * 2 + ["finetune"] * 2
    assert result.history[1]["bits"] <= 8
    assert all(len(w.unique()) <= 511 for w in chosen(result.model))


def test_planes_have_a_rate_of_their_own():
    still, moved = (
        run(Bsq(strength=10.0, plane_rate=rate), epochs=4).history[1]["bits"] for rate in (0.0, 1.0)
    )
    assert moved < still == 8


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Smol(bits=2, bytes=100), "one target"),
        (lambda: Smol(bits=9), r"bits lies in \(0, p_init = 8\]"),
        (lambda: Smol(bits=0), r"bits lies in"),
        (lambda: Smol(finetune=1.0), "fraction of the budget"),
        (lambda: Smol(p_init=1), "starts above 1 bit"),
    ],
)
def test_settings_that_make_no_sense(make, message):
    with pytest.raises(TorchliftError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (Smol(bits=0.5, zero=False), r"is 1.00 on average; allow more, or ask with zero=True"),
        (Smol(bits=0.05, levels=(1, 2)), r"bits=0.05 is not possible: .* or ask without levels="),
        (Smol(bytes=300), r"bytes=300 is below the file's fixed part: \d+ bytes hold no quantized weight"),
        (Smol(where="*bias"), r"matches nothing"),
    ],
)
def test_targets_that_cannot_be_had(recipe, message):
    with pytest.raises(TorchliftError, match=message) as error:
        run(recipe)
    assert "\n" not in str(error.value)
    assert str(error.value) == f"Smol is not for this model: {recipe.accepts(Task(model()))}"
