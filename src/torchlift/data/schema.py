"""What a model must be given, as data: columns and their words, pictures and their scale, names of classes.

Readers write a schema beside the data they read; :func:`encode_inputs` reads new data by it, in the same way.

    table:     {"kind": "table", "columns": [{"name", "words"?, "mean", "std"}, …], "target",
                "classes" of the target or the "scale": {"mean", "std"} of its values}
    pictures:  {"kind": "pictures", "shape": [channels, height, width], "mean", "std", "classes"}
    arrays:    {"kind": "arrays", "shape": […], "dtype"}, or "shapes" of several inputs
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchlift.data.sources import LoadError

Schema = Mapping[str, Any]
ARRAYS = (".npz", ".npy")


def encode_inputs(schema: Schema, data: Any) -> tuple[Tensor, list[str]]:
    """Inputs of a model from new data (a file, a folder, an array, a tensor), and a name for each sample."""
    if isinstance(data, str | Path):
        path = Path(data).expanduser()
        if not path.exists():
            raise LoadError(f"{path} is not there; give a .csv file, a folder of pictures, or an .npz file")
        kind = schema.get("kind", "arrays")
        if kind == "table":
            return encode_table(schema, path)
        if kind == "pictures" and path.suffix not in ARRAYS:
            return encode_pictures(schema, path)
        x = read_inputs(path)
    else:
        x = torch.as_tensor(data)
    check_shape(schema, x)
    return x, [str(number) for number in range(len(x))]


def encode_table(schema: Schema, path: Path) -> tuple[Tensor, list[str]]:
    """The columns that the model was trained on, in their order, standardized as they were."""
    from torchlift.data.tables import cells_below, column_numbers

    names, columns = cells_below(path)
    encoded: list[Tensor] = []
    for column in schema["columns"]:
        if column["name"] not in columns:
            raise LoadError(
                f"{path.name} has no column {column['name']!r}, which the model needs: add or rename one; it "
                f"has: {', '.join(names)}"
            )
        cells = columns[column["name"]]
        if "words" in column:
            strange = sorted(set(cells) - set(column["words"]))
            if strange:
                words = ", ".join(column["words"][:8])
                raise LoadError(
                    f"{path.name}, column {column['name']!r}: {strange[0]!r} is not one of the words the "
                    f"model knows ({words}); write one of these, or train on data that have it"
                )
            values = np.asarray([[cell == word for word in column["words"]] for cell in cells], np.float32)
        else:
            values = column_numbers(path, column["name"], cells)
        mean, std = (torch.tensor(column[key], dtype=torch.float32) for key in ("mean", "std"))
        encoded.append((torch.from_numpy(values) - mean) / std)
    return torch.cat(encoded, 1), [str(line) for line in range(1, len(encoded[0]) + 1)]


def encode_pictures(schema: Schema, path: Path) -> tuple[Tensor, list[str]]:
    """Pictures in a folder, or in folders inside it, scaled as those of the training part were."""
    from torchlift.data.folders import pictures, read_picture, subfolders
    from torchlift.data.images import normalize

    directories = [path, *subfolders(path)] if path.is_dir() else []
    files = [file for directory in directories for file in pictures(directory)] if directories else [path]
    if not files:
        raise LoadError(f"{path} holds no pictures; give a folder of them, or one file")
    channels, height, width = schema["shape"]
    images: list[Tensor] = []
    for file in files:
        picture = read_picture(file)
        if tuple(picture.shape[1:]) != (height, width):
            raise LoadError(
                f"{file}: {tuple(picture.shape[1:])} pixels, the model takes {(height, width)}: resize it"
            )
        images.append(picture.expand(channels, -1, -1) if len(picture) == 1 else picture[:channels])
    mean, std = (torch.tensor(schema[key], dtype=torch.float64) for key in ("mean", "std"))
    return normalize(torch.stack(images), mean, std), [
        str(file.relative_to(path) if directories else file.name) for file in files
    ]


def read_inputs(path: Path) -> Tensor:
    """The array ``x`` of an .npz file (its only array where it has one), or an .npy file."""
    from torchlift.data.arrays import as_numbers, open_arrays

    arrays = {"x": np.load(path, allow_pickle=False)} if path.suffix == ".npy" else open_arrays(path)
    if "x" not in arrays and len(arrays) != 1:
        raise LoadError(f"{path.name} has no array x; it has: {', '.join(arrays)}")
    return as_numbers(arrays["x"] if "x" in arrays else next(iter(arrays.values())))


def check_shape(schema: Schema, x: Tensor) -> None:
    """One sample must have the shape of those the model was trained on."""
    shape = schema.get("shape")
    if schema.get("columns"):  # arrays hold the columns as the model reads them
        shape = [sum(len(column["mean"]) for column in schema["columns"])]
    if shape is not None and (x.ndim == 0 or list(x.shape[1:]) != list(shape)):
        raise LoadError(
            f"the data have samples of shape {tuple(x.shape[1:])}, the model takes "
            f"{tuple(shape)}: pass data of that shape"
        )
