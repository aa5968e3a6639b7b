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
        lifts,
        models,
        optim,
        recipes,
        report,
        testing,
    )
    from torchlift.compress.call import compress
    from torchlift.compress.result import Compressed
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
        step,
        stored,
    )
    from torchlift.deploy.predicting import load_run, predict
    from torchlift.errors import TorchliftError
    from torchlift.experiments import Arm, AutoResult, Comparison, auto, compare, tune
    from torchlift.inversion import Inversion, invert
    from torchlift.methods import lifted
    from torchlift.train import until
    from torchlift.train.run import Result, fit

__version__ = "0.2.0"

__all__ = [
    "Arm",
    "AutoResult",
    "Comparison",
    "Compressed",
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
    "compress",
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
    "load_run",
    "models",
    "optim",
    "predict",
    "recipes",
    "report",
    "step",
    "stored",
    "testing",
    "tune",
    "until",
]

HOMES = {
    "Arm": "experiments",
    "AutoResult": "experiments",
    "Comparison": "experiments",
    "Compressed": "compress",
    "Inversion": "inversion",
    "Result": "train.run",
    "TorchliftError": "errors",
    "auto": "experiments",
    "compare": "experiments",
    "fit": "train.run",
    "invert": "inversion",
    "load_run": "deploy.predicting",
    "predict": "deploy.predicting",
    "until": "train",
}
ROOMS = {"lifted": "methods.lifted", "tune": "experiments.tune"}
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
    "step",
    "stored",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'torchlift' has no attribute {name!r}")
    home = "core" if name in CORE else HOMES.get(name)
    module = importlib.import_module(f"torchlift.{home or ROOMS.get(name, name)}")
    return module if home is None else getattr(module, name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
