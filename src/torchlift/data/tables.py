"""Tables: a .csv file with a header, a row for each sample."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchlift.data.sources import LoadError
from torchlift.data.splits import Kind, Splits, split

TARGETS = ("y", "target", "label", "class")
MOST_CLASSES = 1000
MOST_WORDS = 100


def read_table(path: str | Path, seed: int = 0, kind: Kind | None = None) -> Splits:
    """Inputs and target of a table; 70–10–20 by ``seed``, standardized by the training part.

    The target is the column ``y``, ``target``, ``label`` or ``class``, else the last one. Words and whole
    numbers there are classes, numbers with a decimal point a regression, and so are all numbers with
    ``kind="regression"``. Words in an input column become a column of zeros and ones for each different word.
    Values to predict are standardized, too: an ``mse`` of 1 is that of their mean, and
    :func:`torchlift.predict` gives them in their own unit.
    """
    path = Path(path).expanduser()
    names, columns = read_columns(path)
    target = next((name for name in names if name.lower() in TARGETS), names[-1])
    inputs = [column_inputs(path, name, columns[name]) for name in names if name != target]
    widths = [block.shape[1] for block in inputs]
    x = torch.from_numpy(np.concatenate(inputs, 1, dtype=np.float32))
    y, kind = column_target(path, target, columns[target], kind)
    shuffled = split(x, y, kind, seed)
    mean, std = shuffled.train[0].mean(0), shuffled.train[0].std(0)
    std = torch.where(std > 0, std, 1.0)
    schema: dict[str, Any] = {"kind": "table", "columns": [], "target": target}
    middle, unit = torch.zeros(1), torch.ones(1)
    if kind == "regression":
        middle, unit = shuffled.train[1].mean(0), shuffled.train[1].std(0)
        unit = torch.where(unit > 0, unit, 1.0)
        schema["scale"] = {"mean": middle.tolist(), "std": unit.tolist()}
    train, valid, test = (
        ((x - mean) / std, (y - middle) / unit if kind == "regression" else y)
        for x, y in (shuffled.train, shuffled.valid, shuffled.test)
    )
    means, stds = mean.split(widths), std.split(widths)
    for name, m, s in zip((name for name in names if name != target), means, stds, strict=True):
        column: dict[str, Any] = {"name": name, "mean": m.tolist(), "std": s.tolist()}
        if any(cell_number(cell) is None for cell in columns[name]):
            column["words"] = sorted(set(columns[name]))
        schema["columns"].append(column)
    if kind == "classification":
        schema["classes"] = class_names(columns[target])
    return Splits(train, valid, test, kind, schema)


def cells_below(path: Path) -> tuple[list[str], dict[str, list[str]]]:
    """The same of a table to predict from, which may have a single row or column."""
    return read_columns(path, 1)


def read_columns(path: Path, least: int = 10) -> tuple[list[str], dict[str, list[str]]]:
    """The names in the header, and the cells below each."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LoadError(f"{path} cannot be read as a table ({error}); give comma-separated UTF-8") from error
    if len(rows) < 1 + least:
        raise LoadError(
            f"{path.name}: {max(0, len(rows) - 1)} samples below the header; give {least} at least"
        )
    names = [name.strip() for name in rows[0]]
    if (
        len(names) < min(least, 2)
        or len(set(names)) < len(names)
        or all(cell_number(name) is not None for name in names)
    ):
        raise LoadError(f"{path.name} needs a first row of two or more different column names, not {names}")
    for line, row in enumerate(rows[1:], 2):
        if len(row) != len(names):
            raise LoadError(f"{path.name}, row {line}: {len(row)} cells for {len(names)} columns")
    return names, {name: [row[column].strip() for row in rows[1:]] for column, name in enumerate(names)}


def cell_number(cell: str) -> float | None:
    """A cell's number, if it is one."""
    try:
        return float(cell)
    except ValueError:
        return None


def column_inputs(path: Path, name: str, cells: list[str]) -> NDArray[np.float32]:
    """Numbers as one column, words as a column for each."""
    check_filled(path, name, cells)
    values = [cell_number(cell) for cell in cells]
    if all(value is not None for value in values):
        return check_finite(path, name, np.asarray(values, np.float32))[:, None]
    words = sorted(set(cells))
    if len(words) > MOST_WORDS:
        raise LoadError(
            f"{path.name}, column {name!r}: {len(words)} different words; drop it or make numbers of them"
        )
    return np.asarray([[cell == word for word in words] for cell in cells], np.float32)


def column_target(path: Path, name: str, cells: list[str], kind: Kind | None) -> tuple[Tensor, Kind]:
    """Classes, or numbers."""
    check_filled(path, name, cells)
    values = [cell_number(cell) for cell in cells]
    numeric = all(value is not None for value in values)
    decimal = numeric and any("." in cell or "e" in cell.lower() for cell in cells)
    if kind == "regression" or (decimal and kind is None):
        return torch.from_numpy(column_numbers(path, name, cells)), "regression"
    words = class_names(cells)
    if len(words) < 2:
        raise LoadError(f"{path.name}, column {name!r}: one class only, {words[0]!r}: nothing to learn")
    if len(words) > MOST_CLASSES or (numeric and len(words) > len(cells) // 2):
        raise LoadError(
            f"{path.name}, column {name!r}: {len(words)} different whole numbers or words are not classes; "
            'for a regression pass kind="regression" (--loss mse)'
        )
    index_of = {word: index for index, word in enumerate(words)}
    return torch.tensor([index_of[cell] for cell in cells]), "classification"


def class_names(cells: list[str]) -> list[str]:
    """The classes of a target column, in the order of their numbers."""
    numeric = all(cell_number(cell) is not None for cell in cells)
    return sorted(set(cells), key=(lambda cell: (float(cell), cell)) if numeric else None)


def column_numbers(path: Path, name: str, cells: list[str]) -> NDArray[np.float32]:
    """A column of numbers."""
    check_filled(path, name, cells)
    values = [cell_number(cell) for cell in cells]
    bad = next((cell for cell, value in zip(cells, values, strict=True) if value is None), None)
    if bad is not None:
        raise LoadError(f"{path.name}, column {name!r}: {bad!r} is not a number, and one is needed")
    return check_finite(path, name, np.asarray(values, np.float32))[:, None]


def check_filled(path: Path, name: str, cells: list[str]) -> None:
    """No cell is empty."""
    empty = [line for line, cell in enumerate(cells, 2) if not cell]
    if empty:
        raise LoadError(
            f"{path.name}, column {name!r}: {len(empty)} cells are empty, the first in row {empty[0]}; "
            "fill or drop them"
        )


def check_finite(path: Path, name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Every number is one."""
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise LoadError(f"{path.name}, column {name!r}: NaN or Inf in row {bad[0] + 2}; fill or drop it")
    return values
