"""Which room may import which: the table of ARCHITECTURE.md, checked against the source."""

import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import torchlift as tl

REPOSITORY = Path(__file__).parent.parent
ROOT = REPOSITORY / "src" / "torchlift"
ROW = re.compile(r"^\| (`[^|]+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)

FEW_PACKAGES = {
    "core": {"torch", "numpy"},
    "models": {"torch"},
    "data": {"torch", "numpy"},
    "optim": {"torch"},
    "convex": {"torch"},
    "inversion": {"torch", "rich"},
}
"""Third-party packages of the rooms that promise to need few."""

WORDS = (
    "found made part given known place places told settle settled asked got wish bill anew held marked begin"
)
VAGUE = frozenset(re.findall(r"\w+", WORDS))
"""Words that say nothing of the thing they would name."""
PUBLIC_TWICE = {
    "load": ["data/loading.py", "packed/file.py"],
    "predict": ["deploy/predicting.py", "methods/lifted/predict.py"],
    "reparameterize": ["methods/sharing/mixing.py", "methods/sharing/templates.py"],
    "similarity": ["analyze/sharing.py", "methods/sharing/mixing.py"],
}
"""Names that users know in two namespaces. Verbs of the command line have the name of what they call."""
NAMED = ("src", "tests", "papers", "benchmarks")
"""Folders in which no name is one of them."""


def table() -> dict[str, set[str]]:
    """Each room and what it may import; ``methods/*`` stands for every other folder of a method."""
    rows = ROW.findall((REPOSITORY / "ARCHITECTURE.md").read_text())
    allowed = {room: targets for rooms, targets in rows for room in quoted(rooms)}
    folders = {f"methods/{path.parent.name}" for path in (ROOT / "methods").glob("*/__init__.py")}
    allowed = dict.fromkeys(folders, allowed.pop("methods/*")) | allowed
    leaves = set(quoted(rows[0][0]))
    return {room: leaves | expanded(targets, folders, set(allowed)) for room, targets in allowed.items()}


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def expanded(cell: str, folders: set[str], every: set[str]) -> set[str]:
    """The rooms a cell of the table names."""
    targets = every if cell == "everything" else set(quoted(cell))
    return targets | folders if "methods/*" in targets else targets


def room_of(parts: tuple[str, ...]) -> str:
    """The room of a dotted name or path inside the package."""
    names = [name.removesuffix(".py") for name in parts]
    deep = "/".join(names[:2])
    return deep if deep in ROOMS else names[0] if names and names[0] in ROOMS else "__init__"


@functools.cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


@functools.cache
def statements(source: str) -> list[ast.stmt]:
    """Every import statement of a file, wherever it stands."""
    return [node for node in ast.walk(parsed(source)) if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(source: str, folder: tuple[str, ...]) -> Iterator[str]:
    """Dotted names a file imports; ``folder`` is its package."""
    for node in statements(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = folder[: len(folder) - node.level + 1] if node.level else ()
            yield from (".".join((*above, node.module or "", alias.name)) for alias in node.names)


def rooms_in(source: str, folder: tuple[str, ...]) -> set[str]:
    """The rooms that a file imports; ``torchlift.__version__`` is free."""
    names = [tuple(filter(None, name.split("."))) for name in imports(source, ("torchlift", *folder))]
    return {room_of(name[1:]) for name in names if name[0] == "torchlift" and name[1:] != ("__version__",)}


def packages_in(source: str) -> set[str]:
    """The third-party packages that a file imports."""
    tops = {name.split(".")[0] for name in imports(source, ("torchlift",) * 9)}
    return tops - set(sys.stdlib_module_names) - {"torchlift"}


def files(room: str) -> list[Path]:
    return [path for path in FILES if room_of(path.relative_to(ROOT).parts) == room]


FILES = sorted(ROOT.rglob("*.py"))
ROOMS = table()


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_a_room_imports_what_its_row_allows(room: str) -> None:
    assert files(room), f"ARCHITECTURE.md lists {room}, which has no files"
    forbidden = [
        f"{path.relative_to(ROOT)} imports {target}"
        for path in files(room)
        for target in sorted(rooms_in(path.read_text(), path.relative_to(ROOT).parts[:-1]))
        if target not in ROOMS[room] | {room}
    ]
    assert not forbidden, "\n".join(forbidden)


def test_every_file_is_in_a_room_of_the_table() -> None:
    homeless = {path.relative_to(ROOT).parts[0] for path in files("__init__")} - {"__init__.py"}
    assert not homeless, f"new rooms without a row in ARCHITECTURE.md: {sorted(homeless)}"


def test_small_rooms_need_few_packages() -> None:
    extra = [
        f"{path.relative_to(ROOT)} imports {sorted(needed - few)}"
        for room, few in FEW_PACKAGES.items()
        for path in files(room)
        if (needed := packages_in(path.read_text())) - few
    ]
    assert not extra, "\n".join(extra)


def test_the_package_imports_nothing_of_the_repository_around_it() -> None:
    around = {"papers", "benchmarks", "tests"}
    guilty = [str(path) for path in FILES if packages_in(path.read_text()) & around]
    assert not guilty, "\n".join(guilty)


def defined(tree: ast.Module) -> Iterator[str]:
    """Every name that a file binds: variables, arguments, attributes, functions, classes."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
                | ast.arg(arg=name)
            ):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case _:
                pass


def meanings(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    """The function, class or type that a statement of a file defines, with its value; no constants."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name, ""
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if not name.isupper():
            yield name, ast.unparse(value)
        case _:
            pass


def test_a_name_means_one_thing() -> None:
    homes: dict[str, dict[str, str]] = {}
    for path in FILES:
        file = str(path.relative_to(ROOT))
        for statement in parsed(path.read_text()).body:
            for name, value in meanings(statement):
                if not name.startswith("__") and not file.startswith("cli/verbs/"):
                    homes.setdefault(name, {})[value or file] = file
    shared = {name: sorted(own.values()) for name, own in homes.items() if len(own) > 1}
    assert shared == PUBLIC_TWICE


def test_papers_and_benchmarks_take_no_public_name_for_a_class_of_their_own() -> None:
    public = {name for module in (tl, tl.deploy, tl.lifts, tl.recipes) for name in module.__all__}
    own = {
        (str(path.relative_to(REPOSITORY)), statement.name)
        for folder in ("papers", "benchmarks")
        for path in (REPOSITORY / folder).rglob("*.py")
        for statement in parsed(path.read_text()).body
        if isinstance(statement, ast.ClassDef)
    }
    assert len(own) > 80
    assert not sorted(one for one in own if one[1] in public)


@pytest.mark.parametrize("folder", NAMED)
def test_names_say_what_a_thing_is(folder: str) -> None:
    vague = [
        f"{path.relative_to(REPOSITORY)}: {', '.join(sorted(words))}"
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
        if (words := VAGUE & {name.lower() for name in defined(parsed(path.read_text()))})
    ]
    assert not vague, "\n".join(vague)


def test_every_kind_of_import_is_seen() -> None:
    source = (
        "import os, numpy.linalg, torchlift.train.until\n"
        "from torchlift import deploy, __version__\n"
        "from ..depth import critical\n"
        "from . import targets\n"
        "def f():\n    from torchlift.cli import main\n    import torchlift as tl\n"
    )
    expected = {"train", "deploy", "methods/depth", "methods/sparsity", "cli", "__init__"}
    assert rooms_in(source, ("methods", "sparsity")) == expected
    assert packages_in(source) == {"numpy"}
