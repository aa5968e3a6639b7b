"""Experiments as data: ``protocols.toml`` beside a source's entries, a block for each table and figure.

A block says what was published: the network, the data, how every arm was trained, the numbers that were
printed and where they stand. An entry reads its block and passes it to ``fit``; a smaller run is the same
block with fewer epochs, images or seeds.
"""

import dataclasses
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW

from torchlift.data import Splits, crop_flip

PAPERS = Path(__file__).parent.parent
Value = TypeVar("Value")
WHOLE = 0.1
"""From this share of the published training on, sweeps and searches are whole."""
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"SGD": SGD, "Adam": Adam, "AdamW": AdamW}
OPTIONS = ("lr", "momentum", "weight_decay", "betas", "eps", "nesterov")
"""Settings of an arm that are its optimizer's; the others are those of ``fit``."""


@dataclasses.dataclass(frozen=True)
class Protocol:
    """One table or figure of a source, as published."""

    source: str
    """The folder of its entries."""
    id: str
    """Its name: "Table 3"."""
    claim: str
    where: str = ""
    """Where it stands: section, page, or the tables with its settings."""
    entry: str | None = None
    """What ``torchlift reproduce`` calls it."""
    record: str | None = None
    """The record where it is not the entry's own."""
    not_run: str | None = None
    """Why there is no entry, or no run."""
    network: str = ""
    data: str = ""
    augmentation: str = "none"
    training: str = ""
    """How it is trained, in words."""
    grid: str = ""
    epochs: float | None = None
    images: int | None = None
    seeds: int | None = None
    """0 where nothing is random."""
    differs: str = ""
    """What our entry has to do differently."""
    arms: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict[str, Mapping[str, Any]])
    printed: Sequence[Mapping[str, Any]] = ()
    """Numbers of the source: ``what``, ``value``, and ``ours``, the cell of the record beside it."""
    checks: Sequence[Mapping[str, Any]] = ()
    """What has to hold in a record for the claim to be reproduced."""

    def settings(self, arm: str) -> dict[str, Any]:
        """What an arm passes to ``fit``."""
        settings = dict(self.arms[arm])
        name = settings.pop("optimizer", None)
        options = {key: settings.pop(key) for key in OPTIONS if key in settings}
        chosen: dict[str, Any] = {} if name is None else {"optimizer": partial(OPTIMIZERS[name], **options)}
        epochs = settings.pop("epochs", self.epochs)
        if isinstance(drops := settings.get("schedule"), Mapping):
            settings["schedule"] = Drops(tuple(at / epochs for at in drops["at"]), drops["factor"])
        if settings.pop("augment", None):
            settings["augment"] = crop_flip
        return chosen | settings

    def length(self, arm: str, epochs: float | None) -> float:
        """Epochs of an arm where the protocol's own are cut to ``epochs``."""
        own: float = self.arms[arm].get("epochs", self.epochs)
        return own if epochs is None else own * epochs / (self.epochs or own)


@dataclasses.dataclass(frozen=True)
class Drops:
    """The rate is multiplied by ``factor`` at each of these parts of a training."""

    at: tuple[float, ...]
    factor: float

    def __call__(self, t: float) -> float:
        """What multiplies the rate at t in [0, 1]."""
        return self.factor ** sum(t >= at for at in self.at)


@cache
def protocols(source: str, papers: Path = PAPERS) -> dict[str, Protocol]:
    """All blocks of a source by their names."""
    blocks = tomllib.loads((papers / source / "protocols.toml").read_text())["result"]
    results = [Protocol(source, **block) for block in blocks]
    names = [one.id for one in results]
    if len(set(names)) < len(names):
        raise ValueError(f"papers/{source}/protocols.toml: two blocks have the same id")
    return dict(zip(names, results, strict=True))


def protocol(source: str, name: str) -> Protocol:
    """The block of a table or figure."""
    return protocols(source)[name]


def every_protocol(papers: Path = PAPERS) -> Iterator[Protocol]:
    """The blocks of all sources."""
    for file in sorted(papers.glob("*/protocols.toml")):
        yield from protocols(file.parent.name, papers).values()


def share_of(epochs: float, published: float, images: int, all_images: int) -> float:
    """The share of a sweep: 1 from a tenth of the published training on, below it less in proportion."""
    return min(1.0, epochs * images / (WHOLE * published * all_images))


def thinned(values: Sequence[Value], share: float) -> list[Value]:
    """A share of a sweep's values, evenly spaced from its first to its last; one: that in the middle."""
    count = math.ceil(share * len(values))
    if count == 1:
        return [values[len(values) // 2]]
    return [values[round(number * (len(values) - 1) / (count - 1))] for number in range(count)]


def few(data: Splits, images: int | None) -> Splits:
    """The first ``images`` samples to train on, and no more than that to validate and test on."""
    if images is None:
        return data

    def first(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return pair[0][:images], pair[1][:images]

    return Splits(first(data.train), first(data.valid), first(data.test), data.kind)
