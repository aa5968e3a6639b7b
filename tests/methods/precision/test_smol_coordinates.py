"""Bits learned in other coordinates, with zeros that move: a plain network is delivered, on grids by row."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import torchlift as tl
from methods.sparsity.sparse_runs import data, run
from torchlift.core import Task, nodes
from torchlift.errors import TorchliftError
from torchlift.lifts import Normalize, Precision, Standardize
from torchlift.recipes import Chain, ContinuousSparsification, Inside, MagnitudePruning, Smol


def plain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2))


def delivered(result, tmp_path) -> None:
    """A plain network on grids, whose file gives it back and which scores as it was reported to."""
    assert not list(nodes(result.model))
    assert list(result.model.state_dict()) == list(plain().state_dict())
    grids = {name for name, record in result.stored.items() if record.step is not None}
    assert grids == {name for name, p in result.model.named_parameters() if p.ndim > 1}
    x, y = data(64)
    loss = nn.functional.cross_entropy(result.model.eval()(x), y)
    assert_close(loss.item(), result.scores["valid"].loss, rtol=1e-5, atol=1e-6)
    tl.deploy.save(result.model, tmp_path / "m.tl")
    loaded = tl.deploy.load(tmp_path / "m.tl")
    for a, b in zip(result.model.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("zeros", ["held", "moving"])
@pytest.mark.parametrize("lift", [None, Normalize(), Standardize()], ids=repr)
def test_a_plain_network_on_grids(lift, zeros, tmp_path):
    recipe = Smol(bits=2.0, zeros=zeros)
    result = run(recipe if lift is None else Inside(lift, recipe), net=plain())
    delivered(result, tmp_path)
    assert result.history[-1]["bits"] <= 2.05


def test_a_target_in_bytes_counts_the_file_of_the_network_without_norms(tmp_path):
    result = run(Inside(Normalize(), Smol(bytes=1400, zeros="moving")), net=plain())
    delivered(result, tmp_path)
    size = tl.deploy.save(result, tmp_path / "again.tl")
    assert result.history[-1]["bytes"] == pytest.approx(size, abs=16)
    assert size == pytest.approx(1400, rel=0.1)


def test_a_chain_in_one_set_of_coordinates(tmp_path):
    prune = ContinuousSparsification(sparsity=0.5, where="2.weight", finetune=0.0)
    recipe = Chain({"prune": prune, "bits": Smol(bits=2.0, zeros="moving")}, restart=False)
    result = run(Inside(Normalize(), recipe), net=plain())
    delivered(result, tmp_path)
    assert float((result.model[2].weight == 0).float().mean()) >= 0.49
    again = run(recipe, net=plain())
    assert not torch.equal(again.model[0].weight, result.model[0].weight)


def test_moving_zeros_move():
    """The zeros of the run differ from those at the end of its noise, which held ones are."""
    fixed, moving = (run(Smol(bits=1.0, zeros=kind), net=plain()) for kind in ("held", "moving"))
    a, b = (result.model[2].weight == 0 for result in (fixed, moving))
    assert int(a.sum()) == int(b.sum())
    assert not torch.equal(a, b)


def test_bad_settings_raise():
    with pytest.raises(TorchliftError, match="'held' or 'moving'"):
        Smol(bits=2, zeros="free")
    with pytest.raises(TorchliftError, match="moves single zeros"):
        Smol(bits=2, zeros="moving", levels=(1, 2, 4))
    with pytest.raises(TorchliftError, match="takes a lift, then a recipe"):
        Inside(Smol(bits=2), Normalize())
    with pytest.raises(TorchliftError, match="a lift that replaces modules"):
        run(Inside(Precision(), Smol(bits=2)), net=plain())
    bare = nn.Sequential(nn.Linear(8, 4, bias=False), nn.ReLU(), nn.Linear(4, 2, bias=False))
    for recipe in (Smol(bits=2), Chain(MagnitudePruning(sparsity=0.5))):
        reason = Inside(Normalize(), recipe).accepts(Task(bare, "cross_entropy"))
        assert reason is not None
        assert "without a bias" in reason
