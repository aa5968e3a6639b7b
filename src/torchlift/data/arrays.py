"""The user's own arrays: an .npz file, or a folder of .npy files."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchlift.data.sources import LoadError
from torchlift.data.splits import Kind, Pair, Splits, hold_out

Arrays = Mapping[str, NDArray[Any]]
UNFOLDED, GROWTH = 2**28, 32
"""An archive may unfold to 256 MiB and 32 times its own bytes."""
HELD_OUT = {"test": 0.2, "valid": 0.125}  # of what is left each time: 70–10–20


def read_arrays(path: str | Path, seed: int = 0) -> Splits:
    """Arrays ``x`` and ``y``, or ``x_train``, ``y_train`` and, as far as there are, ``_valid`` and ``_test``.

    Parts that are missing are set aside from the training part by ``seed``. Whole-number targets mean
    classes, others regression; where inputs are whole numbers and targets have their shape, text. Bytes
    become numbers in [0, 1].
    """
    path = Path(path).expanduser()
    arrays = open_arrays(path)
    loaded = {
        split: checked_tensors(f"{path.name}, {split}", *pair)
        for split, pair in pairs_by_split(path, arrays).items()
    }
    for split, fraction in HELD_OUT.items():
        if split not in loaded:
            if len(loaded["train"][0]) < 4:
                raise LoadError(
                    f"{path.name}: too few samples to set a {split} split aside; give x_{split}, y_{split}"
                )
            loaded["train"], loaded[split] = hold_out(loaded["train"], fraction, seed)
    x = loaded["train"][0]
    schema = {"kind": "arrays", "shape": list(x.shape[1:]), "dtype": str(x.dtype).removeprefix("torch.")}
    splits = Splits(loaded["train"], loaded["valid"], loaded["test"], target_kind(*loaded["train"]), schema)
    check_together(path.name, splits)
    return splits


def open_arrays(path: Path) -> Arrays:
    """The arrays by name, executing nothing (no pickles)."""
    files = sorted(path.glob("*.npy")) if path.is_dir() else []
    if not files and not path.is_file():
        what = "holds no .npy files" if path.is_dir() else "is not there"
        raise LoadError(f"{path} {what}; give an .npz file or a folder with x.npy and y.npy")
    try:
        if files:
            return {file.stem: np.load(file, mmap_mode="r", allow_pickle=False)[...] for file in files}
        check_unfolded(path)
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
            strange = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
            if strange:
                raise ValueError(f"{strange[0]} is not an array")
            return arrays
    except Exception as error:  # numpy and zipfile raise anything on damaged archives
        reason = str(error).split("\n")[0]
        raise LoadError(
            f"{path} is not a file of plain arrays ({reason}); write it with numpy.savez"
        ) from error


def check_unfolded(path: Path) -> None:
    """Raise for an archive that unfolds to far more than it is: a megabyte can say gigabytes of zeros."""
    with zipfile.ZipFile(path) as archive:
        size = sum(info.file_size for info in archive.infolist())
    if size > UNFOLDED + GROWTH * path.stat().st_size:
        raise ValueError(
            f"it unfolds to {size:,} bytes, more than {GROWTH} times its own; write it again "
            "with numpy.savez, which does not compress"
        )


def pairs_by_split(path: Path, arrays: Arrays) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Inputs and targets by part."""
    names = (
        {"train": ("x", "y")} if "x" in arrays else {p: (f"x_{p}", f"y_{p}") for p in ("train", *HELD_OUT)}
    )
    present = {split: keys for split, keys in names.items() if any(key in arrays for key in keys)}
    for split, keys in {"train": names["train"], **present}.items():
        for key in keys:
            if key not in arrays:
                raise LoadError(
                    f"{path.name} has no {key}, which the {split} split needs; it has: {', '.join(arrays)}"
                )
    return {split: (arrays[x], arrays[y]) for split, (x, y) in present.items()}


def checked_tensors(who: str, x: NDArray[Any], y: NDArray[Any]) -> Pair:
    """Tensors, once the arrays are numbers, finite, of one length and not empty."""
    for name, array in (("x", x), ("y", y)):
        if array.dtype.kind not in "buif":
            raise LoadError(f"{who}: {name} holds {array.dtype}, not numbers; convert it first")
        if array.ndim == 0 or array.size == 0:
            raise LoadError(f"{who}: {name} is empty; give at least one sample")
        bad = np.argwhere(~np.isfinite(array)) if array.dtype.kind == "f" else np.empty((0, 1), int)
        if len(bad):
            rows = len(np.unique(bad[:, 0]))
            raise LoadError(
                f"{who}: {name} has NaN or Inf in {rows} samples, first {bad[0][0]}; drop or fill them"
            )
    if len(x) != len(y):
        raise LoadError(f"{who}: {len(x)} inputs but {len(y)} targets; their first dimensions must agree")
    return as_numbers(x), targets(y)


def as_numbers(x: NDArray[Any]) -> Tensor:
    """Bytes to [0, 1], other whole numbers to int64 (tokens), the rest to float32."""
    if x.dtype == np.uint8:
        return torch.from_numpy(x.astype(np.float32) / 255)
    return torch.from_numpy(x.astype(np.float32 if x.dtype.kind == "f" else np.int64))


def targets(y: NDArray[Any]) -> Tensor:
    """Labels as int64 (n × 1 as n), others as float32 (n as n × 1)."""
    if y.dtype.kind == "f":
        y = y.astype(np.float32)
        return torch.from_numpy(y[:, None] if y.ndim == 1 else y)
    return torch.from_numpy((y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y).astype(np.int64))


def target_kind(x: Tensor, y: Tensor) -> Kind:
    """What the targets ask for."""
    if y.is_floating_point():
        return "regression"
    return "text" if y.ndim > 1 and y.shape == x.shape and not x.is_floating_point() else "classification"


def check_together(who: str, splits: Splits) -> None:
    """What must hold across the parts: one shape, one kind, something to tell apart."""
    (x, y), kind = splits.train, splits.kind
    for split, (inputs, outputs) in (("valid", splits.valid), ("test", splits.test)):
        ours, theirs = (
            (x.shape[1:], y.shape[1:], y.dtype),
            (inputs.shape[1:], outputs.shape[1:], outputs.dtype),
        )
        if ours != theirs:
            raise LoadError(
                f"{who}: train and {split} differ in shape or type of a sample: {ours} and {theirs}"
            )
    if (
        kind != "regression"
        and min(int(split[1].min()) for split in (splits.train, splits.valid, splits.test)) < 0
    ):
        raise LoadError(f"{who}: labels must count from 0; there are negative ones")
    if bool((y == y.flatten()[0]).all()):
        what = "target" if kind == "regression" else "class"
        raise LoadError(
            f"{who}: the training data have one {what} only, {y.flatten()[0].item()}: nothing to learn"
        )
