"""Tests behave through public names: what they import from the inside is listed here, with the reason.

Public are the names that a page of ``docs/api`` shows, and the modules that a public module exports.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
REPOSITORY = TESTS.parent
SOURCE = REPOSITORY / "src"
PAGES = "\n".join(page.read_text() for page in sorted((REPOSITORY / "docs" / "api").glob("*.md")))
IMPORTED = re.compile(r"^\s*from (torchlift[\w.]*) import (\w+)", re.MULTILINE)

INSIDE = {
    "channels: which slices belong together, what they are worth, and the layers that a cut leaves, each "
    "beside its definition, which the cut network alone would not show": (
        "channels/test_deploy_layers.py",
        "channels/test_follow.py",
        "channels/test_prune_checks.py",
        "channels/test_prune_operations.py",
        "channels/test_scores.py",
        "shrink_trials.py",
    ),
    "compress: the closed forms of refit, grids, free targets and blocks of columns against brute force": (
        "compress/test_closed_forms.py",
        "compress/test_compress.py",
        "compress/test_free_targets.py",
        "compress/test_layers.py",
        "compress/test_polish.py",
        "compress/test_replay.py",
    ),
    "core and leaves: what flows between layers, the invariant of stored weights, the search for a target, "
    "operations counted by hand": (
        "core/test_flow.py",
        "core/test_stored.py",
        "core/test_targets.py",
        "deploy/test_flops.py",
        "train/test_equal_cost.py",
    ),
    "data: a folder in the place of the one where the system has data": ("data/test_files.py",),
    "deploy: forms of a graph and grids of kernels that the integer file is made of": (
        "deploy/test_export_integer.py",
    ),
    "experiments: choices of a search (rungs, fronts, spaces, deadlines, lost workers), which a whole search "
    "would take minutes to come to": (
        "experiments/test_auto.py",
        "experiments/test_best_of.py",
        "experiments/test_executors.py",
        "experiments/test_search.py",
    ),
    "mathematics of a method: blocks, grids, codes, gates and factors against their formulas": (
        "inversion/test_deep.py",
        "methods/depth/test_critical.py",
        "methods/depth/test_layer_pruning.py",
        "methods/lifted/test_exact_blocks.py",
        "methods/lifted/test_unified.py",
        "methods/precision/test_bit_targets.py",
        "methods/precision/test_keep_grid.py",
        "methods/precision/test_moving_grid.py",
        "methods/precision/test_rate_distortion.py",
        "methods/sparsity/test_mask.py",
        "optim/test_matrices.py",
    ),
    "packed: the entropy coder and the reader, on bytes that no writer of ours would write": (
        "forging.py",
        "packed/test_byteflow.py",
        "packed/test_hostile.py",
        "packed/test_tensors.py",
    ),
    "papers: entries take the library apart themselves": (
        "papers/test_cells.py",
        "papers/test_inversion_entries.py",
        "papers/test_protocols.py",
    ),
    "report: numbers, axes and paths as they are drawn": (
        "report/test_numbers.py",
        "report/test_svg.py",
    ),
    "train: locks, digests and the files of a run, damaged byte by byte": (
        "train/run/test_folders.py",
        "train/run/test_identity.py",
        "train/test_checkpoint.py",
        "train/test_fuzz.py",
        "train/test_journal.py",
    ),
    "cli: words of a command to settings, without a run for each": (
        "cli/test_cli_config.py",
        "test_doc_commands.py",
    ),
}
"""Files that import from the inside, by the reason."""


def source_of(module: str) -> Path | None:
    """The file of a module of the package; None where there is none."""
    path = SOURCE.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def statements(module: str) -> list[ast.stmt]:
    file = source_of(module)
    return ast.parse(file.read_text()).body if file else []


@functools.cache
def exported(module: str) -> frozenset[str]:
    """What a module lists in ``__all__`` (and ``MODULES``), and what its page shows beside."""
    listed = set(re.findall(rf"auto\w+:: {re.escape(module)}\.(\w+)$", PAGES, re.MULTILINE))
    for statement in statements(module):
        match statement:
            case ast.Assign(targets=[ast.Name(id="__all__" | "MODULES")], value=value):
                listed |= set(ast.literal_eval(value))
            case _:
                pass
    return frozenset(listed)


def exported_modules(module: str) -> Iterator[str]:
    """Its own modules that a package exports, not functions of their names."""
    for statement in statements(module):
        match statement:
            case ast.ImportFrom(module=package, names=names) if package == module:
                yield from (f"{module}.{one.name}" for one in names if one.name in exported(module))
            case _:
                pass


@functools.cache
def public_modules() -> frozenset[str]:
    """Modules with a page, the command, and modules that one of these exports."""
    modules = {"torchlift", "torchlift.cli", *re.findall(r"automodule:: (\S+)", PAGES)}
    return frozenset(modules | {inner for module in modules for inner in exported_modules(module)})


def is_public(module: str, name: str) -> bool:
    if module not in public_modules() or (name.startswith("_") and name != "__version__"):
        return False
    everything = not exported(module) and source_of(f"{module}.{name}") is None
    return (
        name in exported(module)
        or f"{module}.{name}" in public_modules()
        or everything
        or name == "__version__"
    )


def is_inside(dotted: str) -> bool:
    """Whether a dotted name leads through a module that is not public."""
    module = "torchlift"
    for name in dotted.split(".")[1:]:
        if name in exported(module) and f"{module}.{name}" not in public_modules():
            return False
        module = f"{module}.{name}"
        if source_of(module) is None:
            return False
        if module not in public_modules():
            return True
    return False


def dotted(node: ast.expr) -> str:
    """``tl.deploy.measure`` of an expression that is nothing but names and dots."""
    match node:
        case ast.Attribute(value=owner, attr=name):
            return f"{dotted(owner)}.{name}"
        case ast.Name(id=name):
            return name
        case _:
            return ""


def internals(file: Path) -> Iterator[str]:
    """Names from the inside of the package that a file imports, patches or hands to another process."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "torchlift":
                yield from (f"{module}.{one.name}" for one in names if not is_public(module, one.name))
            case ast.Import(names=names):
                yield from (one.name for one in names if is_inside(one.name))
            case ast.Constant(value=str(text)):
                if re.fullmatch(r"torchlift(\.\w+)+", text) and is_inside(text):
                    yield text
                yield from (f"{m}.{n}" for m, n in IMPORTED.findall(text) if not is_public(m, n))
            case ast.Attribute():
                chain = dotted(node)
                if chain.startswith("tl.") and is_inside(chain):
                    yield chain
            case _:
                pass


def test_tests_import_public_names_or_are_listed() -> None:
    listed = {name for files in INSIDE.values() for name in files}
    inside = {
        str(file.relative_to(TESTS)): names
        for file in sorted(TESTS.rglob("*.py"))
        if (names := sorted(set(internals(file)))) and file != Path(__file__)
    }
    new = [f"{file} imports {', '.join(names)}" for file, names in inside.items() if file not in listed]
    assert not new, "public names would do, or a reason is missing in INSIDE:\n" + "\n".join(new)
    assert not listed - inside.keys(), f"public names do now: {sorted(listed - inside.keys())}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torchlift as tl\ntl.deploy.measure(tl.lifts.precision.bits(1.0), tl.tune.search)", []),
        ("from torchlift.methods.lifted import LiftedClassifier, activations, penalties", []),
        ("from torchlift.lifts import SoftMask, precision\nfrom torchlift.train import until", []),
        (
            "from torchlift.train import engines\nfrom torchlift.errors import machine_fault",
            ["torchlift.train.engines"],
        ),
        ("import torchlift.train.loop", ["torchlift.train.loop"]),
        ("import torchlift as tl\ntl.compress.planning.PARTS = 4", ["tl.compress.planning"]),
        ("patch('torchlift.data.arrays.UNFOLDED', 1)", ["torchlift.data.arrays.UNFOLDED"]),
        ("run('''\nfrom torchlift.train.loop import Loop\n''')", ["torchlift.train.loop.Loop"]),
        ("from torchlift.convex.activations import get, table", ["torchlift.convex.activations.table"]),
        (
            "from torchlift.core import stored\nfrom torchlift.core.stored import hold",
            ["torchlift.core.stored.hold"],
        ),
    ],
)
def test_what_is_public_and_what_is_not(tmp_path: Path, source: str, expected: list[str]) -> None:
    (tmp_path / "test.py").write_text(source)
    assert [name for name in internals(tmp_path / "test.py") if not name.endswith("PARTS")] == expected
