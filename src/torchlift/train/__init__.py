"""One loop, durable: stopping rules, checkpoints, cost, evaluation. Knows problems, not methods."""

from torchlift.train import until
from torchlift.train.batches import Source, source
from torchlift.train.callbacks import Callback
from torchlift.train.durable import DurableFit, Fitted, Interrupted, Run
from torchlift.train.engines import Engine, engine
from torchlift.train.evaluation import Score, evaluate
from torchlift.train.history import History
from torchlift.train.settings import Settings
from torchlift.train.stepping import StepContext, Stepper
from torchlift.train.store import Store

__all__ = [
    "Callback",
    "DurableFit",
    "Engine",
    "Fitted",
    "History",
    "Interrupted",
    "Run",
    "Score",
    "Settings",
    "Source",
    "StepContext",
    "Stepper",
    "Store",
    "engine",
    "evaluate",
    "source",
    "until",
]
