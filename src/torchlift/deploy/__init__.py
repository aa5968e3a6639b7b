"""From a trained model to a small one: its real size, cost and speed. Names are imported when first used."""

from typing import TYPE_CHECKING

from torchlift.lazy import lazy

if TYPE_CHECKING:
    from torchlift.channels.groups import Plan as Plan
    from torchlift.channels.groups import channel_groups as channel_groups
    from torchlift.channels.groups import plan as plan
    from torchlift.channels.mask_weights import mask_weights as mask_weights
    from torchlift.channels.shrink import shrink as shrink
    from torchlift.channels.shrink import shrinkable as shrinkable
    from torchlift.deploy.exporting import Exported as Exported
    from torchlift.deploy.exporting import export as export
    from torchlift.deploy.measuring import Measured as Measured
    from torchlift.deploy.measuring import measure as measure
    from torchlift.deploy.pruning import prune as prune
    from torchlift.deploy.sparse_layers import sparse as sparse
    from torchlift.packed.file import load as load
    from torchlift.packed.file import save as save

HOMES = {
    "Exported": "deploy.exporting",
    "Measured": "deploy.measuring",
    "Plan": "channels.groups",
    "channel_groups": "channels.groups",
    "export": "deploy.exporting",
    "load": "packed.file",
    "mask_weights": "channels.mask_weights",
    "measure": "deploy.measuring",
    "plan": "channels.groups",
    "prune": "deploy.pruning",
    "save": "packed.file",
    "shrink": "channels.shrink",
    "shrinkable": "channels.shrink",
    "sparse": "deploy.sparse_layers",
}

__all__ = [
    "Exported",
    "Measured",
    "Plan",
    "channel_groups",
    "export",
    "load",
    "mask_weights",
    "measure",
    "plan",
    "prune",
    "save",
    "shrink",
    "shrinkable",
    "sparse",
]

__getattr__, __dir__ = lazy(__name__, HOMES)
