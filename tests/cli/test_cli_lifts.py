"""A single lift by its name: lift → fit → project, in fit, compare and tune alike."""

import json
import re
from inspect import signature

import pytest

from torchlift import lifts
from torchlift.core import Lift

FIT = "fit --model mlp --arg hidden=[8] --data blobs.npz --epochs 1 --out a"


@pytest.mark.parametrize("flag", ["--lift", "--recipe"])
def test_fit_by_a_lift(run, blobs, flag):
    ran = run(f"{FIT} {flag} expand --set rank=0.5 --json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["recipe"] == "Expand(where='*weight', rank=0.5, side='out')"


def test_a_lift_in_a_file_and_in_a_comparison(run, blobs, tmp_path):
    (tmp_path / "run.toml").write_text(
        'model = "mlp"\ndata = "blobs.npz"\nepochs = 1\nrecipe = ["expand", "slim"]\n'
        "[arg]\nhidden = [8]\n[set]\nslim.sparsity = 0.5\n"
    )
    ran = run("compare --config run.toml --seeds 1 --out c --json")
    assert ran.code == 0, ran.err
    said = json.loads(ran.out)["recipes"]
    assert list(said) == ["plain", "expand", "slim"]
    assert "Slim(where='*weight', sparsity=0.5" in said["slim"]["settings"]["recipe"]


def test_a_lift_is_tuned(run, blobs):
    pytest.importorskip("optuna")
    ran = run(
        "tune --model mlp --arg hidden=[8] --data blobs.npz --lift expand --space rank=0.5,2 --trials 2 "
        "--epochs 1 --out t --json"
    )
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["best"]["rank"] in (0.5, 2)


def named(module, kind):
    """The classes that a module exports, by their names on the command line."""
    classes = [one for name in module.__all__ if isinstance(one := getattr(module, name), type)]
    return {
        re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", one.__name__).lower(): one
        for one in classes
        if issubclass(one, kind)
    }


LIFTS = named(lifts, Lift)


@pytest.mark.parametrize("name", LIFTS)
def test_every_lift_is_made_by_name_or_says_what_it_needs(fails, name):
    """What is made is followed by the data, which are not there."""
    fields = signature(LIFTS[name]).parameters.values()
    needed = [field.name for field in fields if field.default is field.empty]
    said = fails(f"fit --model mlp --data gone.npz --recipe {name}")
    if needed:
        assert re.search(f"{name} (needs|takes tensors as) .*{'|'.join(needed)}.*--", said)
    else:
        assert "gone.npz is not there" in said


def test_a_lift_with_what_it_needs(run, blobs):
    ran = run(f"{FIT} --recipe lifter --set where=linear1 --set width=4 --json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["recipe"].startswith("Lifter(where='linear1', kind='mlp', width=4")


def test_all_exported_lifts_have_names_and_none_is_that_of_a_recipe(fails):
    said = fails("fit --model mlp --data gone.npz --recipe ?")
    listed = re.search(r"recipes: (.*); lifts: (.*); or package", said)
    assert listed is not None
    whole, single = (set(names.split(", ")) for names in listed.groups())
    assert single == set(LIFTS)
    assert not whole & single


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            "--lift help",
            ["recipes: best-of, ", "neural-lifting", "; lifts: ", "soft-mask", "package.module"],
        ),
        ("--lift expnad", ["did you mean 'expand'"]),
        ("--lift lifter", ["lifter needs where", "--set where="]),
        (
            "--lift auxiliary --set inputs=[1]",
            ["auxiliary takes tensors as inputs", "no flag", "--recipe file.py:name"],
        ),
        ("--lift standardize --set x=[1.0]", ["standardize takes tensors as x", "no flag"]),
        ("--lift rotate --set batches=[1]", ["rotate takes tensors as batches", "no flag"]),
        ("--lift expand --set rnak=2", ["expand's field 'rnak'", "'rank'"]),
        ("--lift expand --set side=up", ["--set side", "'up'"]),
    ],
)
def test_bad_settings_fail(fails, blobs, more, words):
    fails(f"{FIT} {more}", *words)


def test_tensors_are_seen_inside_other_types_and_in_functions(fails, blobs, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from torch import Tensor\nfrom torchlift.lifts import Expand\n"
        "def make(starts: dict[str, Tensor] | None = None): return Expand()\n"
    )
    fails(f"{FIT} --recipe mine.py:make --set starts.a=1", "mine.py:make takes tensors as starts")


def test_a_lift_made_in_python_is_taken_as_it_is(run, blobs, tmp_path):
    (tmp_path / "own.py").write_text("from torchlift.lifts import Expand\nmine = Expand(rank=3.0)\n")
    ran = run(f"{FIT} --lift own.py:mine --json")
    assert ran.code == 0, ran.err
    assert "rank=3.0" in json.loads(ran.out)["recipe"]
