"""Train a larger, smoother problem; bring the solution back to the small network you wanted.

min f(w)  ──lift──►  min F(u)  ──fit──►  u*  ──project──►  w*

Names are imported when first used: ``import torchlift`` itself does not load torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchlift import (
        analyze,
        convex,
        data,
        deploy,
        inversion,
        lifted,
        lifts,
        models,
        optim,
        recipes,
        report,
        testing,
        tune,
    )
    from torchlift.core import (
        Dial,
        Lift,
        ModuleLift,
        Node,
        Problem,
        Task,
        WeightLift,
        anneal,
        chain,
        constrain,
        groups,
    )
    from torchlift.errors import TorchliftError
    from torchlift.inversion import Inversion, invert
    from torchlift.run import Comparison, Result, fit
    from torchlift.search import AutoResult, auto, compare
    from torchlift.train import until

__version__ = "0.1.0"

__all__ = [
    "AutoResult",
    "Comparison",
    "Dial",
    "Inversion",
    "Lift",
    "ModuleLift",
    "Node",
    "Problem",
    "Result",
    "Task",
    "TorchliftError",
    "WeightLift",
    "analyze",
    "anneal",
    "auto",
    "chain",
    "compare",
    "constrain",
    "convex",
    "data",
    "deploy",
    "fit",
    "groups",
    "inversion",
    "invert",
    "lifted",
    "lifts",
    "models",
    "optim",
    "recipes",
    "report",
    "testing",
    "tune",
    "until",
]

HOMES = {
    "Comparison": "run",
    "Inversion": "inversion",
    "Result": "run",
    "TorchliftError": "errors",
    "AutoResult": "search",
    "auto": "search",
    "compare": "search",
    "fit": "run",
    "invert": "inversion",
    "until": "train",
}
CORE = {
    "Dial",
    "Lift",
    "ModuleLift",
    "Node",
    "Problem",
    "Task",
    "WeightLift",
    "anneal",
    "chain",
    "constrain",
    "groups",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'torchlift' has no attribute {name!r}")
    home = "core" if name in CORE else HOMES.get(name)
    module = importlib.import_module(f"torchlift.{home or name}")
    return module if home is None else getattr(module, name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
