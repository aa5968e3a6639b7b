"""Lifted networks: activations as variables, trained by convex blocks."""

from typing import TYPE_CHECKING, Any

from torchlift.convex.functions import L1, L2, TV, Wavelets
from torchlift.lifted import activations, penalties, solvers
from torchlift.lifted.bcd import BCD
from torchlift.lifted.contrastive import Contrastive
from torchlift.lifted.history import Trained
from torchlift.lifted.imaging import ProximalConvNet, UnrolledNet
from torchlift.lifted.isgm import ISGM
from torchlift.lifted.network import Network
from torchlift.lifted.predict import predict
from torchlift.lifted.read import Act, read
from torchlift.lifted.recursive import ProximalNet, Recursive, ResidualNet
from torchlift.lifted.shard import Alone, LayerParallel, Shard, Sharded
from torchlift.lifted.soft import Soft, SoftEnergy, States
from torchlift.lifted.splitting import Splitting
from torchlift.lifted.traced import Traced
from torchlift.lifted.train import train
from torchlift.lifted.unified import Unified, UnifiedISGM

if TYPE_CHECKING:
    from torchlift.lifted.estimators import LiftedClassifier as LiftedClassifier
    from torchlift.lifted.estimators import LiftedRegressor as LiftedRegressor

__all__ = [
    "BCD",
    "ISGM",
    "L1",
    "L2",
    "TV",
    "Act",
    "Alone",
    "Contrastive",
    "LayerParallel",
    "Network",
    "ProximalConvNet",
    "ProximalNet",
    "Recursive",
    "ResidualNet",
    "Shard",
    "Sharded",
    "Soft",
    "SoftEnergy",
    "Splitting",
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
        raise AttributeError(f"module 'torchlift.lifted' has no attribute {name!r}")
    try:
        from torchlift.lifted import estimators
    except ModuleNotFoundError as error:
        raise ImportError(f"{name} needs scikit-learn: pip install 'torchlift[data]'") from error
    return getattr(estimators, name)
