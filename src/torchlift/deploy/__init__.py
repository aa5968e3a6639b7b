"""From a trained model to a small one: its real size, cost and speed."""

from torchlift.deploy.classes import register
from torchlift.deploy.couplings import channel_groups
from torchlift.deploy.exporting import export
from torchlift.deploy.measuring import Measured, measure
from torchlift.deploy.packing import load, save
from torchlift.deploy.quantised import Quantised, export_quantised
from torchlift.deploy.shrinking import shrink, shrinkable
from torchlift.deploy.sparse_kernels import sparse

__all__ = [
    "Measured",
    "Quantised",
    "channel_groups",
    "export",
    "export_quantised",
    "load",
    "measure",
    "register",
    "save",
    "shrink",
    "shrinkable",
    "sparse",
]
