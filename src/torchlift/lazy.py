"""Public names that are imported when first used."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy(
    package: str, homes: Mapping[str, str], modules: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose names live in the modules that ``homes`` gives.

    ``modules``: names that stand for whole modules.
    """

    def get(name: str) -> Any:
        if modules and name in modules:
            return importlib.import_module(f"torchlift.{modules[name]}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"torchlift.{homes[name]}"), name)

    return get, lambda: sorted(homes)
