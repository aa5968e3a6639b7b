"""Every Python example of the README and the documentation runs, page by page; the pages build."""

import importlib
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "_build" not in page.parts and BLOCK.search(page.read_text())
]


def program(text: str) -> str:
    """The Python blocks of a page, each on the lines it has there, so that errors name them."""
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        first = text[: block.start(2)].count("\n")
        indent = len(block[1])
        for offset, line in enumerate(block[2].splitlines()):
            lines[first + offset] = line[indent:]
    return "\n".join(lines)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)  # classes defined on a page can be pickled
    exec(compile(program(page.read_text()), page, "exec"), module.__dict__)


def test_blocks_keep_their_lines_and_lose_their_indent():
    text = "a\n```python\nx = 1\n```\nb\n  ```python\n  if x:\n      y = 2\n  ```\n```sh\nls\n```\n"
    assert program(text).rstrip("\n") == "\n\nx = 1\n\n\n\nif x:\n    y = 2"


@pytest.mark.slow
def test_pages_build_without_warnings(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "docs", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "Train a larger, smoother problem" in (tmp_path / "index.html").read_text()


def test_the_results_page_tells_what_the_results_say(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    page = importlib.import_module("page")
    assert page.PAGE.read_text() == page.page(), "run python benchmarks/page.py"
