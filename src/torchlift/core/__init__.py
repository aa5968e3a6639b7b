"""The protocol: problems, lifts, nodes. Knows torch and nothing else."""

from torchlift.core.gradient_step import step
from torchlift.core.modules import ModuleLift
from torchlift.core.node import (
    Dial,
    Frozen,
    Node,
    SteppedDial,
    anneal,
    constrain,
    constrained,
    dials,
    nodes,
    original_parameters,
    penalty,
    refer,
)
from torchlift.core.problem import Problem, Task
from torchlift.core.protocol import Fit, Lift, LiftChain, Span, chain, needs_fit
from torchlift.core.pruned import record_pruned
from torchlift.core.selection import Name, groups, matches, named, select
from torchlift.core.stored import Stored, masked_weights, masks_of, store, stored
from torchlift.core.weights import Reparametrized, WeightLift, liftable
from torchlift.errors import (
    BudgetError,
    CheckpointError,
    DataError,
    DivergedError,
    NeedsFitError,
    OrderError,
    SelectionError,
    TorchliftError,
)
from torchlift.loss import Batch, Loss, Supervised

__all__ = [
    "Batch",
    "BudgetError",
    "CheckpointError",
    "DataError",
    "Dial",
    "DivergedError",
    "Fit",
    "Frozen",
    "Lift",
    "LiftChain",
    "Loss",
    "ModuleLift",
    "Name",
    "NeedsFitError",
    "Node",
    "OrderError",
    "Problem",
    "Reparametrized",
    "SelectionError",
    "Span",
    "SteppedDial",
    "Stored",
    "Supervised",
    "Task",
    "TorchliftError",
    "WeightLift",
    "anneal",
    "chain",
    "constrain",
    "constrained",
    "dials",
    "groups",
    "liftable",
    "masked_weights",
    "masks_of",
    "matches",
    "named",
    "needs_fit",
    "nodes",
    "original_parameters",
    "penalty",
    "record_pruned",
    "refer",
    "select",
    "step",
    "store",
    "stored",
]
