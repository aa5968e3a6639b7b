"""Small real data that comes with scikit-learn."""

import numpy as np
import torch

from torchlift.data.sources import need
from torchlift.data.splits import Splits, split


def digits(seed: int = 0, image: bool = False) -> Splits:
    """Handwritten digits, 1,797 of them, 8 × 8 pixels in [0, 1]: n × 64, or n × 1 × 8 × 8 as ``image``."""
    bunch = need("digits", "sklearn.datasets").load_digits()
    x = torch.from_numpy(bunch.data.astype(np.float32) / 16)
    y = torch.from_numpy(bunch.target.astype(np.int64))
    return split(x.view(-1, 1, 8, 8) if image else x, y, "classification", seed)


def iris(seed: int = 0) -> Splits:
    """Fisher's irises, 150 of them, four measurements standardized by the training part, three classes."""
    bunch = need("iris", "sklearn.datasets").load_iris()
    shuffled = split(*iris_raw(), "classification", seed, (0.2, 0.2))
    mean, std = shuffled.train[0].mean(0), shuffled.train[0].std(0)
    train, valid, test = (((x - mean) / std, y) for x, y in (shuffled.train, shuffled.valid, shuffled.test))
    scales = zip(bunch.feature_names, mean.tolist(), std.tolist(), strict=True)
    columns = [{"name": name, "mean": [m], "std": [s]} for name, m, s in scales]
    classes = [str(name) for name in bunch.target_names]
    schema = {"kind": "table", "columns": columns, "target": "species", "classes": classes}
    return Splits(train, valid, test, "classification", schema)


def iris_raw() -> tuple[torch.Tensor, torch.Tensor]:
    """All 150 irises as they were measured, in centimeters, and their classes."""
    bunch = need("iris", "sklearn.datasets").load_iris()
    return torch.from_numpy(bunch.data.astype(np.float32)), torch.from_numpy(bunch.target.astype(np.int64))
