"""Lifted networks: activations as variables, trained by convex blocks."""

import importlib
from typing import Any

from torchlift.convex.functions import L1, L2, TV, Wavelets
from torchlift.methods.lifted import activations, penalties, solvers
from torchlift.methods.lifted.bcd import BCD
from torchlift.methods.lifted.contrastive import Contrastive
from torchlift.methods.lifted.history import Trained
from torchlift.methods.lifted.imaging import ProximalConvNet, UnrolledNet
from torchlift.methods.lifted.isgm import ISGM
from torchlift.methods.lifted.lift import StateLift
from torchlift.methods.lifted.network import Network
from torchlift.methods.lifted.predict import predict
from torchlift.methods.lifted.read import Act, read
from torchlift.methods.lifted.recursive import ProximalNet, RecurrentNet, Recursive, ResidualNet
from torchlift.methods.lifted.shard import Alone, Shard, Sharded
from torchlift.methods.lifted.soft import Soft, SoftEnergy, States
from torchlift.methods.lifted.splitting import Splitting
from torchlift.methods.lifted.traced import Traced
from torchlift.methods.lifted.train import train
from torchlift.methods.lifted.unified import Unified, UnifiedISGM

__all__ = [
    "BCD",
    "ISGM",
    "L1",
    "L2",
    "TV",
    "Act",
    "Alone",
    "Contrastive",
    "Network",
    "ProximalConvNet",
    "ProximalNet",
    "RecurrentNet",
    "Recursive",
    "ResidualNet",
    "Shard",
    "Sharded",
    "Soft",
    "SoftEnergy",
    "Splitting",
    "StateLift",
    "States",
    "Traced",
    "Trained",
    "Unified",
    "UnifiedISGM",
    "UnrolledNet",
    "Wavelets",
    "activations",
    "penalties",
    "predict",
    "read",
    "solvers",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in ("LiftedClassifier", "LiftedRegressor"):
        raise AttributeError(f"module 'torchlift.methods.lifted' has no attribute {name!r}")
    try:
        estimators = importlib.import_module("torchlift.integrations.lifted_sklearn")
    except ModuleNotFoundError as error:
        raise ImportError(f"{name} needs scikit-learn: pip install 'torchlift[data]'") from error
    return getattr(estimators, name)
