"""What benchmarks say of themselves is what their pages say; the model of memory and traffic, by hand."""

import importlib
import json
from pathlib import Path

import pytest
from torch import nn

ROOT = Path(__file__).parent.parent
RESULTS, DOCS = ROOT / "benchmarks" / "results", ROOT / "docs"


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("processes")


def test_a_step_of_several_processes_by_hand(processes) -> None:
    """3 · 5 + 5 weights, 5 + 5 of the norm; its means, variances and counter of 8 bytes are buffers."""
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))
    assert processes.weights(model) == 4 * 30
    assert processes.buffers(model) == 4 * 10 + 8
    assert processes.reduced(model) == 120 + 4 * 2 * 11
    assert processes.wire(model, 1) == 0
    assert processes.wire(model, 4) == 3 * (2 * 208 + 48)


@pytest.mark.parametrize(
    ("world", "batch", "states", "expected"),
    [
        (1, 2, 1, 5 * 168),  # the trial step: four copies and the optimizer's states
        (1, 100, 2, 5 * 168 + 1000),  # training: three, the states, all of the batch
        (4, 30, 2, 6 * 168 + 80),  # and the buckets, a quarter of the batch, rounded up
        (4, 200, 0, 4 * 168 + 2000),  # the trial step again: its batch is not divided
    ],
)
def test_what_a_process_holds_by_hand(processes, world, batch, states, expected) -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))
    assert processes.memory(model, 10, batch, world, states) == expected


def test_the_model_is_what_was_measured(processes) -> None:
    """Recomputed, not read: bytes to the 16 of an epoch of two steps, memory and the wire to 3 %."""
    actual = json.loads((RESULTS / "processes.json").read_text())
    model = processes.network()
    assert [row["processes"] for row in actual["rows"]] == [1, 2, 3, 4]
    for row in actual["rows"]:
        world = row["processes"]
        assert row["peak"] == pytest.approx(
            processes.memory(model, actual["saved"], actual["batch"], world, 1), rel=0.03
        )
        assert row["wire"] == pytest.approx(processes.wire(model, world), rel=0.03)
        if world > 1:
            assert row["reduced"] - processes.reduced(model) == 8
            assert row["broadcast"] == processes.buffers(model)
    assert processes.table(actual["rows"]) in (DOCS / "processes.md").read_text()


def test_the_table_of_other_tools_is_that_of_its_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    tools = importlib.import_module("other_tools")
    results = RESULTS / "other_tools.json"
    expected = tools.table(json.loads(results.read_text())) if results.exists() else ""
    assert f"<!-- table -->\n{expected}<!-- end of the table -->" in tools.PAGE.read_text()


def test_the_tables_of_integers_are_those_of_their_results(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    integers = importlib.import_module("integer_latency")
    expected = integers.table(json.loads((RESULTS / "integer_latency.json").read_text()))
    assert f"<!-- integers -->\n{expected}<!-- end of integers -->" in integers.PAGE.read_text()
