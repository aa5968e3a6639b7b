"""The protocol: problems, lifts, nodes. Knows torch and nothing else."""

from torchlift.core.errors import (
    CheckpointError,
    DataError,
    DivergedError,
    NeedsFitError,
    OrderError,
    SelectionError,
    TorchliftError,
)
from torchlift.core.loss import Batch, Loss, Supervised
from torchlift.core.modules import ModuleLift
from torchlift.core.node import Dial, Frozen, Node, anneal, dials, nodes, original_parameters, penalty
from torchlift.core.problem import Problem, Task
from torchlift.core.protocol import Chain, Fit, Lift, chain, no_fit
from torchlift.core.selection import groups, matches, select
from torchlift.core.weights import Reparametrised, WeightLift

__all__ = [
    "Batch",
    "Chain",
    "CheckpointError",
    "DataError",
    "Dial",
    "DivergedError",
    "Fit",
    "Frozen",
    "Lift",
    "Loss",
    "ModuleLift",
    "NeedsFitError",
    "Node",
    "OrderError",
    "Problem",
    "Reparametrised",
    "SelectionError",
    "Supervised",
    "Task",
    "TorchliftError",
    "WeightLift",
    "anneal",
    "chain",
    "dials",
    "groups",
    "matches",
    "no_fit",
    "nodes",
    "original_parameters",
    "penalty",
    "select",
]
