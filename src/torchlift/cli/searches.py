"""From the flags of ``tune`` to a search, and from its result to a file ``fit`` takes."""

import functools
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from torchlift.cli.config import RunConfig
from torchlift.cli.pairs import merged_tables
from torchlift.cli.recipes import build_recipe, find_recipe
from torchlift.cli.session import PLAIN, open_session, recipe_settings
from torchlift.experiments.tune import Tuned, parse_space, search
from torchlift.experiments.tune.lines import AVAGRAD
from torchlift.experiments.tune.space import default_space, sort_values
from torchlift.train.until import Epochs, Rule

SEARCH_KEYS = ("space", "trials", "folds", "workers", "seeds", "resume", "overwrite", "out")
SEPARABLE = ("avagrad", "avagradw")


def run_search(config: RunConfig, method: Any, prune: bool, join: bool) -> tuple[Tuned, Path]:
    """The search the flags describe, and its folder."""
    if len(config.recipe) > 1:
        raise ValueError(f"tune takes one recipe, got {', '.join(config.recipe)}")
    name = recipe_name(config)
    maker = find_recipe(name)
    lines = method == "lines" or (method is None and separable(config, name))
    space = parse_space(config.space) if config.space else AVAGRAD if lines else default_space(maker)
    session = open_session(config, "tune")
    tuned = search(
        session.make_model,
        session.data.train,
        session.data.valid,
        recipe=NamedRecipe(name),
        space=space,
        fixed=recipe_settings(config.set, name, [name]),
        method="lines" if lines else "tpe",
        trials=config.trials or 20,
        folds=config.folds,
        workers=config.workers or 1,
        prune=prune,
        out=session.out,
        join=join,
        **session.settings,
    )
    return tuned, session.out


def separable(config: RunConfig, name: str) -> bool:
    """Whether only an optimizer with a separable learning rate and ε is to be tuned."""
    return (config.optimizer or "").lower() in SEPARABLE and not config.space and name == PLAIN


def recipe_name(config: RunConfig) -> str:
    """The recipe whose settings are searched."""
    return config.recipe[0] if config.recipe else PLAIN


class NamedRecipe:
    """A recipe by name: what is drawn is checked as ``--set`` is, and a worker process finds it again."""

    def __init__(self, name: str) -> None:
        self.name = name

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(find_recipe(self.name))

    def __call__(self, **values: Any) -> Any:
        """The recipe with these values."""
        return build_recipe(self.name, find_recipe(self.name), values)

    def __repr__(self) -> str:
        return self.name


def best_config(config: RunConfig, values: Mapping[str, Any]) -> str:
    """The settings of the search with the best values in place, as TOML."""
    settings = {name: value for name, value in config.chosen().items() if name not in SEARCH_KEYS}
    sorted_tables = sort_values(
        {key: as_toml(value) for key, value in values.items()}, NamedRecipe(recipe_name(config))
    )
    rate = {"lr": sorted_tables.optimizer.pop("lr")} if "lr" in sorted_tables.optimizer else {}
    best = sorted_tables.run | rate | {"set": sorted_tables.recipe, "opt": sorted_tables.optimizer}
    return "# The best settings found.\n" + tomli_w.dumps(merged_tables(settings, best))


def as_toml(value: Any) -> Any:
    """A value as ``--set`` takes it; rules become their descriptions."""
    if isinstance(value, Epochs):
        return value.cap
    if isinstance(value, Rule):
        return value.settings()
    return [as_toml(item) for item in value] if isinstance(value, list | tuple) else value
