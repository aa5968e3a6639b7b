"""The first samples of a data set, for trainings that fit two cores."""

from functools import cache

from torch import Tensor

from torchlift.data import Splits, load


@cache
def first_samples(
    name: str, train: int, held_out: int, length: int | None = None, data: str | None = None
) -> Splits:
    """``train`` samples to train on, ``held_out`` each to watch and to report on; texts cut to ``length``."""

    def first(pair: tuple[Tensor, Tensor], n: int) -> tuple[Tensor, Tensor]:
        x, y = pair
        return (x[:n], y[:n]) if length is None else (x[:n, :length], y[:n, :length])

    whole = load(name, data)
    valid, test = (first(one, held_out) for one in (whole.valid, whole.test))
    return Splits(first(whole.train, train), valid, test, whole.kind)
