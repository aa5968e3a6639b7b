"""run.toml repeats a run where its parts have names, says where they have not, runs nothing by itself."""

import functools
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

import torchlift as tl
from torchlift.errors import CheckpointError
from torchlift.optim import AvaGrad
from torchlift.train.run import arguments
from train.run.runs import data, mean_output, model, run, same

PLATEAU = tl.until.Plateau(2, 3, min_delta=1e-3)
REPEATABLE: dict[str, dict[str, Any]] = {
    "defaults": {},
    "a lift": {"recipe": tl.lifts.SoftMask(strength=1e-4), "keep": "best"},
    "neural lifting": {
        "recipe": tl.recipes.NeuralLifting(
            "0", width=8, lrs=(0.1, 0.01, 0.1), until=(PLATEAU, PLATEAU, PLATEAU)
        ),
        "optimizer": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    },
    "a chain": {"recipe": tl.recipes.Chain({"mask": tl.lifts.SoftMask(), "tune": tl.recipes.Plain()})},
    "optimizer of ours": {"optimizer": functools.partial(AvaGrad, lr=0.1, betas=(0.9, 0.99)), "clip": 1.0},
    "groups": {"groups": {"0.*": {"lr": 0.0}, "*": {}}, "schedule": "cosine", "seed": 3},
    "a class": {"optimizer": torch.optim.Adagrad},
}


@pytest.mark.parametrize("name", REPEATABLE)
def test_a_run_is_repeated_from_its_record(tmp_path: Path, name: str) -> None:
    first = run(tmp_path / "a", **REPEATABLE[name])
    settings = arguments(tmp_path / "a")
    again = tl.fit(model(), data(), data(), out=tmp_path / "b", progress=False, **settings)
    assert same(again.model, first.model)
    old, new = (tomllib.loads((tmp_path / name / "run.toml").read_text()) for name in "ab")
    assert old.pop("id") != new.pop("id")
    assert old == new


def test_the_record_is_readable_tables(tmp_path: Path) -> None:
    run(tmp_path, recipe=tl.recipes.NeuralLifting("0", width=8), loss=lambda net, batch: net(batch[0]).mean())
    record = tomllib.loads((tmp_path / "run.toml").read_text())
    assert record["recipe"]["class"] == "torchlift.methods.neural_lifting.recipe:NeuralLifting"
    assert record["recipe"]["fields"]["width"] == 8
    assert record["settings"]["optimizer"]["call"]["import"] == "torch.optim.adamw:AdamW"
    assert record["settings"]["optimizer"]["options"]["lr"] == 1e-3
    assert record["machine"]["torch"] == torch.__version__
    assert record["model"]["modules"]["1"] == "torch.nn.modules.dropout.Dropout(p=0.2, inplace=False)"
    assert "cannot be written as a value" in record["settings"]["loss"]["opaque"]
    with pytest.raises(CheckpointError, match=r"loss cannot be read back.*<lambda>.*pass it yourself"):
        arguments(tmp_path)


@pytest.mark.parametrize(
    "hostile",
    [
        {"class": "os:system", "arguments": ["true"]},
        {"class": "torch.hub:load", "arguments": ["x/y", "z"]},
        {"class": "torch.optim.sgd:SGD", "arguments": []},
        {"call": {"import": "subprocess:run"}, "arguments": [], "options": {}},
        {"import": "torch.optim.adamw:torch.hub.load"},
        {"import": "torchlift.experiments.best_of:copy.deepcopy"},
        {"import": "torch:load"},
        {"import": "builtins:eval"},
        {"import": "torchlift.methods.plain:__builtins__"},
        {"class": "torchlift.methods.plain:Gone"},
    ],
)
def test_a_record_cannot_make_us_run_what_it_likes(tmp_path: Path, hostile: dict[str, Any]) -> None:
    run(tmp_path, epochs=1)
    rewrite(tmp_path, lambda record: record["settings"] | {"schedule": hostile})
    with pytest.raises(CheckpointError, match="schedule"):
        arguments(tmp_path)


def rewrite(folder: Path, settings: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Give the record of a run other settings."""
    record = tomllib.loads((folder / "run.toml").read_text())
    record["settings"] = settings(record)
    (folder / "run.toml").write_text(tomli_w.dumps(record))


def test_the_users_own_packages_are_imported_only_when_allowed(tmp_path: Path) -> None:
    run(tmp_path, loss=mean_output)
    with pytest.raises(CheckpointError, match=r"allow=\('train',\)"):
        arguments(tmp_path)
    assert arguments(tmp_path, allow=["train"])["loss"] is mean_output


@pytest.mark.parametrize(
    "text", ["", "= x", "a = [" + "[" * 5000, "format = 1", 'format = "torchlift-run-1"', "\0"]
)
def test_damaged_records_are_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(CheckpointError, match="choose another folder") as caught:
        run(tmp_path, resume=True)
    assert "\n" not in str(caught.value)


def test_tables_are_the_same_in_whatever_order_a_file_holds_them(tmp_path: Path) -> None:
    settings = {"groups": {"0.*": {"lr": 0.0, "weight_decay": 0.1}, "*": {}}}
    first = run(tmp_path, **settings)

    def backwards(value: Any) -> Any:
        return {key: backwards(value[key]) for key in reversed(value)} if isinstance(value, dict) else value

    rewrite(tmp_path, lambda record: backwards(record["settings"]))
    assert same(run(tmp_path, resume=True, **settings).model, first.model)
