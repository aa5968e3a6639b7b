"""Who may import whom: the arrows of ARCHITECTURE.md, read from the source."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "torchlift"

METHODS = {"core", "convex", "lifts", "train", "optim", "lifted", "analyze", "deploy", "inversion"}
LIBRARY = METHODS | {"recipes", "report", "models", "data", "testing", "run", "tune", "search"}

LEAVES = {"errors", "tree", "loss", "flops", "flow"}
"""Errors, trees of tensors, losses by name, counting, watching a call: what everything may use."""

ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "tree": {"errors"},
    "loss": {"errors"},
    "flops": set(),
    "flow": {"errors", "tree", "loss"},
    "files": set(),
    "core": LEAVES,
    "models": LEAVES,
    "data": LEAVES,
    "optim": LEAVES,
    "convex": LEAVES,
    "lifts": LEAVES | {"core"},
    "train": LEAVES | {"core", "files"},
    "lifted": LEAVES | {"core", "convex", "train"},
    "inversion": LEAVES | {"core", "convex"},
    "analyze": LEAVES | {"core"},
    "deploy": LEAVES | {"core", "files"},
    "testing": LEAVES | {"core", "convex", "deploy"},
    "recipes": LEAVES | METHODS,
    "report": LEAVES | {"core", "files", "train", "analyze", "deploy"},
    "run": LEAVES | LIBRARY - {"tune", "search"} | {"__init__", "files"},
    "tune": LEAVES | {"core", "optim", "recipes", "report", "run", "train"},
    "search": LEAVES | {"core", "deploy", "files", "recipes", "report", "run", "train", "tune"},
    "integrations": LEAVES | {"core", "train", "run", "recipes"},
    "reproduce": set(),
    "cli": LEAVES | LIBRARY | {"__init__", "reproduce"},
    "__init__": LEAVES | LIBRARY,
    "__main__": {"cli"},
}
"""Direct imports inside the package, wherever they stand in a file. Every package may import itself."""

OUTSIDE: dict[str, set[str]] = {
    "core": {"torch"},
    "models": {"torch"},
    "data": {"torch", "numpy"},
    "optim": {"torch"},
    "convex": {"torch"},
    "inversion": {"torch", "rich"},
}
"""Third-party packages of the parts that promise to need few."""


def package(path: Path) -> str:
    """The part of torchlift a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(tree: ast.AST, inside: list[str]) -> Iterator[str]:
    """Dotted names a file imports; ``inside`` is the package the file is in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = inside[: len(inside) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def arrows(source: str, path: Path) -> set[str]:
    """The parts of torchlift that a file imports, other than its own; ``torchlift.__version__`` is free."""
    inside = ["torchlift", *path.relative_to(ROOT).parts[:-1]]
    names = [name.split(".") for name in imports(ast.parse(source), inside)]
    ours = {name[1] if len(name) > 1 else "__init__" for name in names if name[0] == "torchlift"}
    return {name if name in ARROWS else "__init__" for name in ours - {"__version__", package(path)}}


def outside(source: str) -> set[str]:
    """The third-party packages that a file imports."""
    tops = {name.split(".")[0] for name in imports(ast.parse(source), ["torchlift"])}
    return tops - set(sys.stdlib_module_names) - {"torchlift"}


FILES = sorted(ROOT.rglob("*.py"))
NAMES = [str(path.relative_to(ROOT)) for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_imports_follow_the_arrows(path):
    part = package(path)
    assert part in ARROWS, f"{part} is a new part of torchlift: say in ARROWS what it may import"
    forbidden = arrows(path.read_text(), path) - ARROWS[part]
    assert not forbidden, f"{path.name}: {part} may not import {sorted(forbidden)}"


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_small_parts_need_few_packages(path):
    part = package(path)
    if part in OUTSIDE:
        assert outside(path.read_text()) <= OUTSIDE[part]


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_the_package_needs_nothing_of_the_repository_around_it(path):
    assert not outside(path.read_text()) & {"papers", "benchmarks", "tests"}


@pytest.mark.parametrize(
    ("source", "where", "found"),
    [
        ("import torchlift.train.loop", "methods/sparsity/soft_mask.py", {"train"}),
        ("from torchlift import deploy, __version__", "methods/sparsity/soft_mask.py", {"deploy"}),
        ("from torchlift.core import Node", "methods/sparsity/soft_mask.py", {"core"}),
        (
            "from torchlift.methods.sparsity.keep_zeros import KeepZeros",
            "methods/sparsity/soft_mask.py",
            set(),
        ),
        ("from ..run import fit", "methods/sparsity/soft_mask.py", {"run"}),
        ("from . import keep", "methods/sparsity/soft_mask.py", set()),
        ("from .. import reproduce", "methods/sparsity/soft_mask.py", {"reproduce"}),
        ("import torchlift as tl", "methods/sparsity/soft_mask.py", {"__init__"}),
        ("from torchlift import fit", "methods/sparsity/soft_mask.py", {"__init__"}),
        ("def f():\n    from torchlift.cli import main", "methods/sparsity/soft_mask.py", {"cli"}),
    ],
)
def test_the_reader_sees_every_kind_of_import(source, where, found):
    assert arrows(source, ROOT / where) == found


def test_the_reader_sees_third_parties():
    assert outside("import os, numpy.linalg\nfrom torch.nn import Module\nfrom torchlift import core") == {
        "numpy",
        "torch",
    }
