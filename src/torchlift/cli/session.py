"""From checked settings to the objects the library takes."""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchlift.cli.config import RunConfig
from torchlift.cli.datasets import LoadedData, load_data
from torchlift.cli.flags import FitFlags
from torchlift.cli.models import build_model
from torchlift.cli.optimizers import optimizer_from_flags
from torchlift.cli.recipes import make_recipe
from torchlift.data import crop_flip

PLAIN = "plain"


@dataclasses.dataclass(frozen=True)
class Session:
    """A model's factory, data, and the settings of :func:`torchlift.fit` that were chosen."""

    make_model: Callable[[], nn.Module]
    data: LoadedData
    settings: dict[str, Any]
    out: Path


def open_session(config: RunConfig, verb: str) -> Session:
    """Check the cheap things first, then read the data, then try the model's factory."""
    model, source = config.need("model"), config.need("data")
    settings = fit_settings(config)
    data = load_data(source, config.data_folder, config.seed or 0, config.loss)
    make_model = functools.partial(build_model, model, config.arg, data.shape, data.outputs)
    make_model()
    settings.setdefault("loss", data.loss)
    return Session(make_model, data, settings, out_folder(config, verb))


def fit_settings(config: RunConfig) -> dict[str, Any]:
    """The chosen settings as arguments of :func:`torchlift.fit`."""
    names = [field.name for field in dataclasses.fields(FitFlags)]
    settings = {name: getattr(config, name) for name in names if getattr(config, name) is not None}
    optimizer = optimizer_from_flags(config.optimizer, config.lr, config.opt)
    if optimizer is not None:
        settings["optimizer"] = optimizer
    if config.augment:
        settings["augment"] = crop_flip
    if config.device not in (None, "auto"):
        check_device(config.device)
    return settings


def check_device(device: str) -> None:
    """A device torch has."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"--device {device}: {str(error).splitlines()[0]}") from error


def out_folder(config: RunConfig, verb: str) -> Path:
    """The run's folder: as given, or named by what is run."""
    if config.out:
        return Path(config.out)
    words = [verb, *(config.recipe or (PLAIN,)), config.model or "", config.data or ""]
    return Path("runs") / re.sub(r"[^\w.]+", "-", "-".join(words)).strip("-")


def one_recipe(config: RunConfig) -> Any:
    """The recipe of a single run."""
    if len(config.recipe) > 1:
        raise ValueError(f"one run takes one recipe, got {', '.join(config.recipe)}; see: torchlift compare")
    name = config.recipe[0] if config.recipe else PLAIN
    return make_recipe(name, recipe_settings(config.set, name, [name]))


def several_recipes(config: RunConfig) -> dict[str, Any]:
    """The recipes of a comparison by their labels: ``name``, or ``label=name`` to tell two alike apart."""
    named = dict(labeled(entry) for entry in config.recipe)
    if not set(named) - {PLAIN}:
        raise ValueError("compare needs a recipe to compare with plain training: pass --recipe NAME")
    labels = [*named, PLAIN]
    make_recipe(PLAIN, config.set.get(PLAIN, {}))
    return {
        label: make_recipe(name, recipe_settings(config.set, label, labels))
        for label, name in named.items()
        if label != PLAIN
    }


def executor_of(config: RunConfig) -> str | int | None:
    """Where runs go: this process, so many others, or one per core."""
    return "processes" if config.jobs == 0 else config.jobs


def number_of_bytes(text: str | float) -> float:
    """``50k`` → 50,000; ``1.5M`` → 1,500,000."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([kKmM]?)[bB]?\s*", str(text))
    if match is None:
        raise ValueError(f"--bytes takes 50000, 50k or 1.5M, got {text!r}")
    return float(match[1]) * {"": 1, "k": 1e3, "m": 1e6}[match[2].lower()]


def labeled(entry: str) -> tuple[str, str]:
    """``wide=neural-lifting`` → its label and its recipe."""
    label, equals, name = entry.partition("=")
    return (label, name) if equals else (entry, entry)


def recipe_settings(settings: Mapping[str, Any], label: str, labels: list[str]) -> dict[str, Any]:
    """The settings given to all recipes, then those to this one."""
    shared = {key: value for key, value in settings.items() if key not in labels}
    return shared | dict(settings.get(label, {}))
