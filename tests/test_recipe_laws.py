"""Every recipe on fresh and pruned models, with a named loss and one's own, with validation data or none."""

import copy
import os
import signal
import warnings
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import torchlift as tl
from every_recipe import RECIPES, data, model
from torchlift.core import nodes
from torchlift.errors import TorchliftError
from torchlift.optim import Muon, Soap
from torchlift.train import Interrupted

EPOCHS = 6

DEAR = {"lifted init": 24}
"""Epochs at equal cost where 6 do not pay for a trial: a step of block solvers is many plain ones."""

RESHAPING = ("sharing", "layers", "channels", "pooled")
"""What these deliver has other layers or widths than what they were given."""

QUANTIZING = ("rate and distortion", "smol", "smol, moving", "bit planes", "chain, normalized")

PRUNING = (
    "sparsification",
    "sparsification, normalized",
    "tickets",
    "magnitude",
    "gradual",
    "iterative magnitude",
    "iterative stochastic",
    "sequential",
    "chain",
    "lift then tune",
    "a mask",
)

LIFTED = ("lifted", "lifted isgm", "lifted bcd", "lifted init")

NOT_SUPPORTED = {
    **{(name, "pruned"): "is pruned" for name in LIFTED if name != "lifted"},
    **{(name, "own"): "needs loss=" for name in LIFTED},
    ("deepened", "pruned"): "merging would",
    ("layers", "pruned"): "would fill the zeros",
}
"""What cannot be done right, and the reason that must be given."""


def smoothed(net: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """A loss no name stands for."""
    x, y = batch[:2]
    return cross_entropy(net(x), y, label_smoothing=0.1) + 0.5


def run(name: str, *, pruned: bool = False, valid: bool = True, **settings):
    options = {
        "optimizer": partial(torch.optim.Adam, lr=0.01),
        "batch_size": 32,
        "progress": False,
        "seed": 1,
        "epochs": EPOCHS,
    }
    return tl.fit(
        settings.pop("net", None) or model(pruned),
        data(1),
        data(2, 64) if valid else None,
        recipe=copy.deepcopy(RECIPES[name]),
        **options | settings,
    )


def check_records(name: str, result: tl.Result, pruned: bool) -> None:
    """What was pruned or quantized is known to be: no zero without a mask, no grid without a step."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        records = result.stored
    matrices = {key: p for key, p in result.model.named_parameters() if p.ndim > 1}
    for key, p in matrices.items() if name not in QUANTIZING else ():
        if 0 < int(p.count_nonzero()) < p.numel() and (pruned or name in PRUNING):
            assert key in records, f"{key} is pruned, and nobody knows"
            assert torch.equal(records[key].kept, p != 0), f"the mask of {key}"
    for key in matrices if name in QUANTIZING else ():
        assert records[key].step is not None, f"{key} is on a grid, and nobody knows"


def circumstances() -> list[object]:
    """Pruned or not, the loss, validation data or none: eight for every recipe, of which make test runs two
    opposite ones, so that a recipe meets each of the six, and each of the eight meets every fourth recipe."""
    eight = [
        (pruned, loss, valid, f"{state}-{kind}-{held_out}")
        for pruned, state in ((False, "fresh"), (True, "pruned"))
        for loss, kind in (("cross_entropy", "named"), (smoothed, "own"))
        for valid, held_out in ((True, "valid"), (False, "none"))
    ]
    return [
        pytest.param(name, *values, id=f"{name}-{label}", marks=() if chosen else pytest.mark.nightly)
        for number, name in enumerate(RECIPES)
        for index, (*values, label) in enumerate(eight)
        for chosen in [number % 4 in (index, 7 - index)]
    ]


@pytest.mark.parametrize(("name", "pruned", "loss", "valid"), circumstances())
def test_what_is_delivered_is_what_was_asked_for(name: str, pruned: bool, loss, valid: bool) -> None:
    """Plain modules, zeros kept, cost within the budget, and the user's loss in the history."""
    before = model(pruned)
    states = (["pruned"] if pruned else []) + (["own"] if loss is smoothed else [])
    reason = next((NOT_SUPPORTED[name, state] for state in states if (name, state) in NOT_SUPPORTED), None)
    if reason is not None:
        with pytest.raises(TorchliftError, match=reason):
            run(name, pruned=pruned, valid=valid, loss=loss)
        return
    epochs = DEAR.get(name, EPOCHS)
    result = run(name, pruned=pruned, valid=valid, loss=loss, equal_cost=True, epochs=epochs)
    assert not list(nodes(result.model))
    check_records(name, result, pruned)
    assert result.cost <= epochs * (1 + 1e-9)
    if name not in RESHAPING:
        assert [type(m) for m in result.model.modules()] == [type(m) for m in before.modules()]
        assert list(result.model.state_dict()) == list(before.state_dict())
        for new, old in zip(result.model.parameters(), before.parameters(), strict=True):
            if pruned and old.ndim > 1:
                assert bool((new[old == 0] == 0).all())
    if valid:
        with torch.no_grad():
            task = tl.Task(result.model, loss)
            assert result.scores["valid"].loss == pytest.approx(float(task(data(2, 64))), rel=1e-4)
        last = result.history[-1]
        shown = last.get("projected_loss", last["valid_loss"])
        if name not in (
            "a mask",
            "auxiliary",
            "sparsification",
            "sequential",
            *RESHAPING,
        ):  # rows of masked networks
            assert shown == pytest.approx(result.scores["valid"].loss, rel=0.02)


@pytest.mark.parametrize("name", ["neural lifting", "rotated", "sparsification", "chain", "auto"])
def test_resume_rejects_other_initial_weights(name: str, tmp_path) -> None:
    run(name, out=tmp_path)
    other = model()
    with torch.no_grad():
        other[0].weight.add_(0.01)
    with pytest.raises(TorchliftError, match="was made with"):
        run(name, out=tmp_path, resume=True, net=other)


def test_the_best_weights_are_those_of_the_users_loss() -> None:
    """While distilling, ``keep="best"`` goes by the task, not by the distance to the teacher."""
    result = run("neural lifting", loss=smoothed)
    rows = [row for row in result.history if row["phase"] == "project"]
    assert min(row["valid_loss"] for row in rows) == pytest.approx(result.scores["valid"].loss, rel=1e-4)
    assert all(row["valid_loss"] > 0.5 for row in result.history)


def test_what_is_lifted_already_is_no_model_to_fit() -> None:
    task = tl.Task(model())
    for lifted in (tl.lifts.SoftMask().lift(task), tl.lifts.Normalize().lift(task).model):
        with pytest.raises(TorchliftError, match="this one is lifted"):
            tl.fit(lifted, data(1), epochs=1, progress=False)


@pytest.mark.parametrize("name", RECIPES)
def test_muon_and_soap_resume_bit_for_bit_and_keep_zeros(name: str, tmp_path) -> None:
    """Under every recipe, SOAP for two layers, Muon for the others; stopped by a signal and continued."""
    pruned = (name, "pruned") not in NOT_SUPPORTED
    groups = {"[28].*": {"optimizer": partial(Soap, lr=0.01, every=2)}, "*": {}}
    settings = {"optimizer": partial(Muon, lr=0.01), "groups": groups, "pruned": pruned, "valid": False}
    settings["epochs"] = EPOCHS / 2
    whole = run(name, **settings)
    rows: list[object] = []

    def stop(row: object) -> None:
        rows.append(row)
        if len(rows) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run(name, out=tmp_path, listener=stop, **settings)
    again = run(name, out=tmp_path, resume=True, **settings)
    for (key, one), two in zip(
        whole.model.state_dict().items(), again.model.state_dict().values(), strict=True
    ):
        assert torch.equal(one, two), key
    assert again.stored.keys() == whole.stored.keys()
    for one, two in zip(again.stored.values(), whole.stored.values(), strict=True):
        for mine, other in ((one.levels, two.levels), (one.step, two.step), (one.kept, two.kept)):
            assert mine is other is None or torch.equal(mine, other)
    if pruned and name not in RESHAPING:
        for new, old in zip(whole.model.parameters(), model(pruned).parameters(), strict=True):
            assert bool((new[old == 0] == 0).all())
