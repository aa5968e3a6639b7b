"""From a trained model to a small one: its real size, cost and speed."""

from torchlift.deploy.classes import register
from torchlift.deploy.exporting import export
from torchlift.deploy.groups import Plan, channel_groups, plan
from torchlift.deploy.measuring import Measured, measure
from torchlift.deploy.packing import load, save
from torchlift.deploy.pruning import prune
from torchlift.deploy.quantised import Quantised, export_quantised
from torchlift.deploy.shrinking import shrink, shrinkable
from torchlift.deploy.sparse_kernels import sparse
from torchlift.deploy.weighing import mask_weights

__all__ = [
    "Measured",
    "Plan",
    "Quantised",
    "channel_groups",
    "export",
    "export_quantised",
    "load",
    "mask_weights",
    "measure",
    "plan",
    "prune",
    "register",
    "save",
    "shrink",
    "shrinkable",
    "sparse",
]
