"""The list of long tests names tests that exist."""

import ast
from pathlib import Path

from nightly import NIGHTLY

ROOT = Path(__file__).parent.parent


def functions(file: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_line_names_a_test() -> None:
    gone = [
        line
        for line in sorted(NIGHTLY)
        for file, _, name in [line.partition("[")[0].partition("::")]
        if not (ROOT / file).is_file() or name not in functions(ROOT / file)
    ]
    assert not gone, "tests/nightly.txt names what is not there: " + ", ".join(gone)
