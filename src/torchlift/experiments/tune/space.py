"""Where to search: ranges and choices by name, or a function of an Optuna trial."""

import contextlib
import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from torchlift.errors import TorchliftError
from torchlift.recipes import (
    ChannelPruning,
    ContinuousSparsification,
    LayerPruning,
    MagnitudePruning,
    NeuralLifting,
    Smol,
)
from torchlift.train.until import Plateau

RUN_SETTINGS = ("batch_size", "clip", "epochs", "keep", "schedule")
"""What may be searched beside the recipe's fields and the optimizer's options."""


@dataclasses.dataclass(frozen=True)
class Range:
    """All numbers from low to high, whole ones if both ends are, on a logarithmic scale with ``log``."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        finite = math.isfinite(self.low) and math.isfinite(self.high)
        if not (finite and self.low < self.high and (self.low > 0 or not self.log)):
            raise TorchliftError(f"a range needs low < high, above 0 if logarithmic; got {self}.")

    def suggest(self, trial: Any, name: str) -> Any:
        """A number drawn by the trial."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(name, self.low, self.high, log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of several values."""

    values: tuple[Any, ...]

    def suggest(self, trial: Any, name: str) -> Any:
        """A value picked by the trial."""
        return trial.suggest_categorical(name, self.values)


Space = Mapping[str, Range | Choice]
SpaceFunction = Callable[[Any], Mapping[str, Any]]
"""``space(trial) -> values``: for spaces whose values depend on one another, or are made of several draws."""


def parse_space(texts: Mapping[str, str]) -> Space:
    """``"1e-4:1e-1:log"`` is a range, ``"a,b,c"`` a choice."""
    return {name: parse_one(name, text) for name, text in texts.items()}


def parse_one(name: str, text: str) -> Range | Choice:
    """One range or choice."""
    ends = text.split(":")
    if len(ends) == 1:
        return Choice(tuple(read_space(word) for word in text.split(",")))
    low, high = read_space(ends[0]), read_space(ends[1])
    if isinstance(low, str | bool) or isinstance(high, str | bool) or ends[2:] not in ([], ["log"]):
        raise TorchliftError(f"the space of {name} reads low:high, low:high:log or a,b,c; got {text!r}.")
    return Range(low, high, bool(ends[2:]))


def read_space(text: str) -> int | float | bool | str:
    """A whole number, a number, true or false, or else the word it is."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return {"true": True, "false": False}.get(text.strip(), text.strip())


def table4(trial: Any) -> dict[str, Any]:
    """The search space of neural lifting on CIFAR-10 (Neural lifting, appendix B.1, Table 4).

    Phases end on a plateau; the cap, which the paper does not state, is 100 epochs.
    """
    lrs = (
        trial.suggest_float("lr_base", 5e-3, 1e-1, log=True),
        trial.suggest_float("lr_lifted", 1e-3, 1e-2, log=True),
        trial.suggest_float("lr_project", 1e-3, 1e-1, log=True),
    )
    return {
        "lrs": lrs,
        "mix": trial.suggest_float("mix", 0.1, 0.6),
        "until": Plateau(trial.suggest_int("patience", 10, 20), 100),
        "width": trial.suggest_int("width", 800, 1300),
        "init": trial.suggest_categorical("init", ("zeros", "kaiming", "xavier")),
        "clip": trial.suggest_float("clip", 3.5, 5.0),
    }


def default_space(recipe: Callable[..., Any]) -> Space | SpaceFunction:
    """A recipe's own ``space(trial)``, the paper's where it gives one, else the learning rate and decay."""
    own: SpaceFunction | None = getattr(recipe, "space", None)
    if own is not None:
        return own
    if recipe is NeuralLifting:
        return table4
    return {"lr": Range(1e-4, 1e-1, log=True), "opt.weight_decay": Range(1e-6, 1e-2, log=True)}


RATE = "lr"
SPAN = 10.0
"""The rate is searched from a tenth of the given one to ten times it."""

DECLARED: dict[type[Any], Space] = {
    ChannelPruning: {"share": Range(0.3, 0.7)},
    ContinuousSparsification: {"finetune_rate": Range(0.1, 1.0, log=True)},
    LayerPruning: {"finetune": Range(0.1, 0.5)},
    MagnitudePruning: {"share": Range(0.3, 0.7)},
    NeuralLifting: {"mix": Range(0.1, 0.6)},
    Smol: {"finetune_rate": Range(0.1, 1.0, log=True)},
}
"""What :func:`torchlift.compare` searches of a recipe beside its rate: how it trains, never how small its
result is to be."""


def own_space(recipe: Any, rate: float | None) -> Space:
    """The rate, and the declared fields that the recipe at hand leaves at their defaults."""
    declared = DECLARED.get(type(recipe), {})
    defaults = {field.name: field.default for field in dataclasses.fields(recipe)} if declared else {}
    free = {name: axis for name, axis in declared.items() if getattr(recipe, name) == defaults[name]}
    return ({} if rate is None else {RATE: Range(rate / SPAN, rate * SPAN, log=True)}) | free


def draw(space: Space | SpaceFunction, trial: Any) -> dict[str, Any]:
    """The values a trial takes."""
    if isinstance(space, Mapping):
        return {name: axis.suggest(trial, name) for name, axis in space.items()}
    return dict(space(trial))


@dataclasses.dataclass(frozen=True)
class TrialValues:
    """Values by where they go."""

    recipe: dict[str, Any]
    run: dict[str, Any]
    optimizer: dict[str, Any]


def sort_values(values: Mapping[str, Any], recipe: Callable[..., Any]) -> TrialValues:
    """The recipe's fields, settings of the run, and the optimizer's options (``lr``, ``opt.<name>``)."""
    fields = list(inspect.signature(recipe).parameters)
    sorted_values = TrialValues({}, {}, {})
    for name, value in values.items():
        if name in fields:
            sorted_values.recipe[name] = value
        elif name in RUN_SETTINGS:
            sorted_values.run[name] = value
        elif name == "lr" or name.startswith("opt."):
            sorted_values.optimizer[name.removeprefix("opt.")] = value
        else:
            have = ", ".join([*fields, *RUN_SETTINGS, "lr", "opt.<option>"])
            raise TorchliftError(f"nothing to search is called {name!r}; there are: {have}.")
    return sorted_values
