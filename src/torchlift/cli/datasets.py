"""The data a command names."""

import dataclasses
from typing import Any

from torchlift import data
from torchlift.cli.imports import import_object
from torchlift.data import Splits
from torchlift.data.folders import MeanStd


@dataclasses.dataclass(frozen=True)
class LoadedData:
    """Three parts, and what a built-in model needs to know of them."""

    train: Any
    valid: Any
    test: Any
    loss: str = "cross_entropy"
    shape: tuple[int, ...] | None = None
    outputs: int | None = None
    schema: Any = None


def load_data(
    name: str, folder: str | None, seed: int, loss: str | None = None, scale: MeanStd | None = None
) -> LoadedData:
    """Built-in data, arrays in files, or what the user's function returns; by ``mse``, numbers of a table
    are values; ``scale`` is that of pictures."""
    if ":" in name:
        return from_function(name)
    return from_splits(data.load(name, folder, seed, "regression" if loss == "mse" else None, scale))


def from_splits(splits: Splits) -> LoadedData:
    """Data in memory know their shapes."""
    return LoadedData(
        splits.train, splits.valid, splits.test, splits.loss, splits.shape, splits.outputs, splits.schema
    )


def from_function(name: str) -> LoadedData:
    """``package.module:function`` returns Splits, or (train, valid) or (train, valid, test)."""
    loaded = import_object("--data", name)()
    if isinstance(loaded, Splits):
        return from_splits(loaded)
    if not isinstance(loaded, tuple) or len(loaded) not in (2, 3):
        raise ValueError(
            f"--data {name} must return Splits or (train, valid[, test]), not {type(loaded).__name__}"
        )
    train, valid, *rest = loaded
    return LoadedData(train, valid, *(rest or [None]))
