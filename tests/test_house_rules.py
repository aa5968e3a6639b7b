"""What the source looks like: functions that fit a screen, few fields, a core that stays small."""

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchlift import lifts
from torchlift.core import Lift

SOURCE = Path(__file__).parent.parent / "src" / "torchlift"


def functions() -> Iterator[tuple[str, int]]:
    """Every function and its lines, without its docstring."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0]
                text = ast.get_docstring(node, clean=False)
                told = 0 if text is None else (first.end_lineno or 0) - first.lineno + 1
                yield f"{path.name}: {node.name}", (node.end_lineno or 0) - node.lineno + 1 - told


def test_functions_fit_a_screen() -> None:
    assert not [name for name, lines in functions() if lines > 60]


def test_the_core_is_small() -> None:
    assert sum(len(path.read_text().splitlines()) for path in (SOURCE / "core").glob("*.py")) <= 1000


@pytest.mark.parametrize("name", [name for name in lifts.__all__ if inspect.isclass(getattr(lifts, name))])
def test_a_lift_has_few_fields_or_says_why(name: str) -> None:
    lift = getattr(lifts, name)
    if issubclass(lift, Lift) and len(dataclasses.fields(lift)) > 8:
        assert "More than eight fields: " in (lift.__doc__ or "")
