"""Pages say what the benchmarks' records say."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compress_page", BENCHMARKS / "compress_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_pages_are_those_of_the_records(writer: ModuleType) -> None:
    for path, text in writer.pages().items():
        assert path.read_text() == text, "run python benchmarks/compress_page.py"


def test_a_rival_is_held_against_files_of_ours_that_are_no_larger(writer: ModuleType) -> None:
    def cells(size: float, error: float, *rights: float) -> list[dict[str, float]]:
        return [{"bytes": size, "output error": error, "accuracy": right} for right in rights]

    methods = {
        "original": cells(1000, 0.0, 99.0, 97.0),
        "ours, 4 bits": cells(100, 0.1, 96.0, 98.0),
        "ours, 2 bits": cells(60, 0.2, 97.0, 99.0),
        "ours, 8 bits": cells(200, 0.01, 98.0, 99.0),
        "GPTQ, 4 bits": cells(99, 0.1, 95.0, 95.0),
        "rounding, 2 bits": cells(50, 0.9, 10.0, 20.0),
        "palette of 4": [{"fails": 1.0}],
    }
    gaps = writer.duels(methods)
    assert gaps["GPTQ, 4 bits"] == pytest.approx(2.0)  # by outputs, not by the better test accuracy
    assert gaps["rounding, 2 bits"] != gaps["rounding, 2 bits"]
    assert set(gaps) == {"GPTQ, 4 bits", "rounding, 2 bits"}
    assert writer.spread(methods["ours, 4 bits"]) == pytest.approx(2**0.5)
