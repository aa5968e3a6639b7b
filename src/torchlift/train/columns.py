"""Data as people have them, as tensors: numpy arrays, lists of samples, tables with named columns.

Floating-point numbers become torch's default type (numpy's own is float64, no model's), signed integers
int64; tensors, and bytes as images have them, stay as they are.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchlift.errors import DataError


def as_tensors(data: Any) -> Any:
    """The same samples as a tree of tensors; what is not an array, list of samples or table stays."""
    if is_table(data):
        return {name: column(name, data[name]) for name in names_of(data)}
    if is_samples(data):
        first = data[0]
        if isinstance(first, Mapping):
            return {name: column(name, column_values(data, name)) for name in first}
        return tuple(column(str(index), [row[index] for row in data]) for index in range(len(first)))
    if isinstance(data, Mapping):
        return {name: as_tensors(branch) for name, branch in data.items()}
    if isinstance(data, tuple | list):
        return tuple(as_tensors(branch) for branch in data)
    return from_array("the data", data) if isinstance(data, np.ndarray) else data


def is_table(data: Any) -> bool:
    """Whether there are columns to ask for by name, as ``datasets`` and data frames have."""
    return not isinstance(data, Mapping | Tensor) and bool(names_of(data)) and hasattr(data, "__getitem__")


def names_of(table: Any) -> list[str]:
    """The names of a table's columns; none where it is not a table."""
    names = getattr(table, "column_names", None)
    names = getattr(table, "columns", None) if names is None else names
    return [str(name) for name in names] if isinstance(names, Iterable) else []


def known_classes(table: Any) -> dict[str, Any]:
    """The names of the classes and of their column, where a table's features say them, as ``datasets`` do."""
    features = getattr(table, "features", None)
    if not is_table(table) or not isinstance(features, Mapping):
        return {}
    named = {str(column): getattr(kind, "names", None) for column, kind in features.items()}
    return next(({"classes": list(names), "target": column} for column, names in named.items() if names), {})


def is_samples(data: Any) -> bool:
    """Whether it is a list of samples: dicts, or tuples (x, y)."""
    if not isinstance(data, list) or not data:
        return False
    first = data[0]
    return isinstance(first, Mapping) or (
        isinstance(first, tuple) and len(data) > 2 and all(isinstance(row, tuple) for row in data)
    )


def column_values(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """One column of a list of dicts."""
    for number, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            raise DataError(
                f"sample {number} has the keys {sorted(row)}, sample 0 {sorted(rows[0])}: give all the same."
            )
    return [row[name] for row in rows]


def column(name: str, cells: Any) -> Tensor:
    """One column as a tensor, or one line on why it is none."""
    if isinstance(cells, Tensor):
        return cells
    rows = cells if isinstance(cells, np.ndarray) else list(cells)
    if isinstance(rows, list) and rows and all(isinstance(row, Tensor) for row in rows):
        rows = [row.numpy(force=True) for row in rows]
    try:
        array = np.asarray(rows)
    except ValueError as error:
        raise DataError(f"column {name!r} has rows of different lengths: pad them to one.") from error
    return from_array(f"column {name!r}", array)


def from_array(name: str, array: Any) -> Tensor:
    """A numpy array as a tensor of a type that torch computes with."""
    if array.dtype.kind not in "fiub":
        what = "text" if array.dtype.kind in "US" else "objects that are not numbers"
        raise DataError(
            f"{name} holds {what}: leave it out, or turn it into numbers (a tokenizer, categories)."
        )
    tensor = torch.from_numpy(np.ascontiguousarray(array) if array.flags.writeable else array.copy())
    if array.dtype.kind == "f":
        return tensor.to(torch.get_default_dtype())
    return tensor.long() if array.dtype.kind == "i" else tensor
