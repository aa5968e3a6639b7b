"""What a run tells of itself: titles in words, bits as they are stored, layers before and after."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import torchlift as tl
from torchlift.methods import as_recipe

x = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
DATA = (x, (x[:, 0] > 0).long())
R = tl.recipes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("told")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    chain = R.Chain(R.ChannelPruning(ratio=0.5), R.Smol(bits=3.0))
    tl.fit(model, DATA, DATA, recipe=chain, epochs=4, batch_size=32, out=out, overwrite=True, progress=False)
    return out


def test_measure_the_card_and_the_report_agree_on_bits(folder: Path) -> None:
    card, summary = (json.loads((folder / name).read_text()) for name in ("card.json", "result.json"))
    measured = tl.deploy.measure(tl.deploy.load(folder / "model.tl"), x[:1])
    assert measured.bits == card["size"]["bits"] == summary["after"]["bits"]
    assert measured.bits < 16 * measured.params
    assert summary["before"]["bits"] == 32 * summary["before"]["params"]


def test_layers_before_and_after_and_the_accuracy_before_the_cut_are_told(folder: Path) -> None:
    summary = json.loads((folder / "result.json").read_text())
    assert summary["widths"] == [["0 (Linear)", 16, 8], ["2 (Linear)", 2, 2]]
    before = [row["metric"] for row in summary["history"] if row["phase"] == "ChannelPruning: before"]
    assert summary["uncut"] == before[-1]
    assert set(summary["given"]) == {"valid"}
    assert summary["counts"] == {"valid": 96}


def test_what_was_lifted_has_the_names_of_the_users_model(folder: Path) -> None:
    summary = json.loads((folder / "result.json").read_text())
    noise = next(lift for lift in summary["lifts"] if lift["phase"] == "Smol: noise")
    assert (noise["what"], noise["where"]) == ("Noisy", "0.weight, 2.weight")
    assert "nodes." not in (folder / "report.html").read_text()


def test_titles_are_words(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    assert "<h1>Sequential: channel pruning → Smol</h1>" in page
    head = page[page.index("<h1>") : page.index("<main")]
    assert "recipes={" not in head
    assert "(" not in head[: head.index("</h1>")]
    assert as_recipe(tl.lifts.Normalize()).title == "Normalize"
    assert (
        R.Inside(tl.lifts.Normalize(), R.MagnitudePruning(sparsity=0.5)).title
        == "magnitude pruning inside Normalize"
    )
    assert as_recipe(my_recipe).title == "my recipe"


def my_recipe(task: tl.Task, fit: object) -> tl.Task:
    return task


def test_the_card_leaves_defaults_out(folder: Path) -> None:
    recipe = json.loads((folder / "card.json").read_text())["from"]["recipe"]
    assert "Smol(bits=3.0)" in recipe
    assert len(recipe) < 120


def test_pruned_weights_have_no_bits() -> None:
    model = nn.Linear(4, 2, bias=False)
    task = tl.fit(nn.Sequential(nn.Linear(6, 2)), DATA, recipe=R.MagnitudePruning(sparsity=0.5), epochs=1,
                  batch_size=32, progress=False)  # fmt: skip
    assert tl.deploy.measure(model, x[:1, :4]).bits == 8 * 32
    assert tl.deploy.measure(task.model, x[:1]).bits == 32 * (6 + 2)
