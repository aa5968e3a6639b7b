"""Every Python example of the README and the documentation runs, page by page; the pages build."""

import functools
import importlib
import inspect
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import torchlift as tl

ROOT = Path(__file__).parent.parent
API = sorted((ROOT / "docs" / "api").glob("torchlift.*.md"))
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


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built pages; any warning is an error."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "docs", str(out)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return out


@pytest.mark.slow
def test_pages_build_without_warnings(site):
    assert "Make a PyTorch network really smaller" in (site / "index.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("page", API, ids=[page.stem for page in API])
def test_everything_a_package_exports_is_on_its_page(site, page):
    module, shown = importlib.import_module(page.stem), anchors(site / "api" / f"{page.stem}.html")
    for name in getattr(module, "__all__", documented(module)):
        if not isinstance(getattr(module, name), types.ModuleType):  # modules have pages of their own
            assert f"{page.stem}.{name}" in shown


@pytest.mark.slow
def test_links_between_pages_lead_somewhere(site):
    actual = 0
    for page in site.rglob("*.html"):
        for href in re.findall(r'<a class="reference internal" href="([^"]*)"', page.read_text()):
            path, _, anchor = href.partition("#")
            target = (page.parent / path).resolve() if path else page.resolve()
            assert target.is_file(), f"{page.name} links to {href}"
            assert not anchor or anchor in anchors(target), f"{page.name} links to {href}"
            actual += anchor.startswith("torchlift.")
    assert actual > 300, "types in signatures and names in docstrings are links"


@pytest.mark.slow
def test_every_picture_of_a_built_page_is_there(site):
    """Those named in HTML of a page's own, too."""
    for page in site.rglob("*.html"):
        for picture in re.findall(r'(?:src|srcset)="([^"]+\.(?:svg|png))"', page.read_text()):
            assert (page.parent / picture).is_file(), f"{page.name} shows {picture}"


TABLE = re.compile(r"^## (?:Hyper-parameters|Settings)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
METHOD_PAGES = [page for page in PAGES if page.parent.name == "methods" and TABLE.search(page.read_text())]


@pytest.mark.parametrize("page", METHOD_PAGES, ids=[page.stem for page in METHOD_PAGES])
def test_the_table_of_a_method_names_options_that_are_there(page):
    text = page.read_text()
    rooms = (tl, tl.recipes, tl.lifts, tl.optim, tl.deploy, tl.convex, tl.lifted)
    classes = (
        getattr(room, name, None) for name in set(re.findall(r"\b[A-Za-z]+\b", text)) for room in rooms
    )
    options = {option for one in classes if callable(one) for option in inspect.signature(one).parameters}
    rows = re.findall(r"^\|([^|]*)\|", TABLE.search(text)[1], re.MULTILINE)
    assert [name for row in rows for name in re.findall(r"`([a-z_]+)`", row) if name not in options] == []


def test_links_between_sources_lead_to_files():
    """What a page links to is there; anchors and names in docstrings are checked on the built pages."""
    pages = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in page.parts]
    broken = [
        f"{page.relative_to(ROOT)} links to {target}"
        for page in pages
        for target in re.findall(r"""(?:\]\(|src(?:set)?=")([^)#:\s"]+)(?:#[^)]*)?[)"]""", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert not broken, "\n".join(broken)


def documented(module: types.ModuleType) -> list[str]:
    """The classes and functions a module without ``__all__`` defines."""
    own = (
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    )
    return [name for name in own if not name.startswith("_")]


@functools.cache
def anchors(page: Path) -> set[str]:
    """Where links into a page can lead."""
    return set(re.findall(r'\bid="([^"]+)"', page.read_text()))


def test_every_public_package_has_its_page():
    homes = (ROOT / "src" / "torchlift").glob("*/__init__.py")
    packages = {f"torchlift.{home.parent.name}" for home in homes} - {"torchlift.cli"}
    assert packages | {"torchlift.train.until", "torchlift.cli.reproduction"} <= {page.stem for page in API}


def test_the_results_page_tells_what_the_results_say(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    page = importlib.import_module("page")
    written = page.page(page.records(), tmp_path / "results")
    assert page.PAGE.read_text() == written, "run python benchmarks/page.py"
