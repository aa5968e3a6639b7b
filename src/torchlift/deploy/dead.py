"""Which channels can be cut without changing what the model computes, and what must be folded for it.

A channel is cut where every layer that reads it either ignores it (a zero column), or is given a constant:
all layers that write it have zero rows, so that norms, activations and sums behind them emit one number c
whatever the input. c = 0 adds nothing. c ≠ 0 goes into the reader's bias, b ← b + c·Σ W[:, i], which is exact
for linear layers and unpadded convolutions; at the border of a zero-padded one it is not, and the channel
stays.
"""

import dataclasses

import torch
from torch import Tensor, nn

from torchlift.deploy.couplings import CONV, Coupling, Member
from torchlift.deploy.cuts import Cuts, cuts_of, dimension, merged

Folds = dict[str, Tensor]
"""What is added to the bias of a layer."""


@dataclasses.dataclass(frozen=True, eq=False)
class Verdict:
    """What becomes of one coupling."""

    name: str
    channels: int
    silent: int
    """Channels whose writers are all zero: what a mask meant to remove."""
    dead: Tensor
    """Boolean: the channels that go."""
    why: str = ""
    """Why silent channels stay, if some do."""

    @property
    def cut(self) -> int:
        """How many channels go."""
        return int(self.dead.sum())


@dataclasses.dataclass(frozen=True, eq=False)
class Surgery:
    """The verdicts on some couplings, and what they mean for the tensors."""

    verdicts: tuple[Verdict, ...]
    cuts: Cuts
    folds: Folds


def judge(model: nn.Module, coupling: Coupling, seen: dict[str, list[Tensor]]) -> Verdict:
    """Decide for each channel of a coupling; ``seen`` are the inputs of the layers that read."""
    silent = torch.ones(coupling.channels, dtype=torch.bool)
    for writer in coupling.of("writes"):
        by_root(silent, writer, zero_slices(model, writer))
    dead = torch.full_like(silent, not coupling.blocked)
    why = coupling.blocked
    if coupling.blocked:
        return Verdict(coupling.name, coupling.channels, int(silent.sum()), dead, why)
    for reader in coupling.of("reads"):
        layer = model.get_submodule(reader.layer)
        low, high = extent(layer, reader, seen[reader.layer])
        still = high - low <= 1e-6 * high.abs().clamp(min=1.0)
        absorbed = still & ((low == 0) & (high == 0) | folds_exactly(layer))
        fine = zero_slices(model, reader) | (silent[reader.root] & absorbed)
        by_root(dead, reader, fine)
        if not why and bool((silent[reader.root] & ~fine).any()):
            why = reason(reader.layer, silent[reader.root] & ~fine, still)
    if bool(dead.all()):
        dead[0] = False
        why = why or "all channels are dead: one is kept"
    return Verdict(coupling.name, coupling.channels, int(silent.sum()), dead, why)


def reason(reader: str, stay: Tensor, still: Tensor) -> str:
    """Why silent channels stay."""
    if bool(still[stay].all()):
        cause = f"{reader} pads with zeros and cannot take the constant they emit into its bias"
    else:
        cause = f"what reaches {reader} from them is not constant"
    return f"{int(stay.sum())} zero channels stay: {cause}"


def by_root(status: Tensor, member: Member, fine: Tensor) -> None:
    """Unset the channels of a coupling for which some slice of a member is not fine."""
    status[member.root[~fine]] = False


def zero_slices(model: nn.Module, member: Member) -> Tensor:
    """Which of a member's slices of weights are exactly zero."""
    layer = model.get_submodule(member.layer)
    weight = layer.get_parameter("weight").detach()
    dim = dimension(layer, "weight", member.role)
    assert dim is not None
    return (weight.transpose(0, dim).flatten(1) == 0).all(1).cpu()[member.index]


def extent(layer: nn.Module, reader: Member, inputs: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The least and the greatest value each channel has, over samples, places and calls."""
    lows: list[Tensor] = []
    highs: list[Tensor] = []
    for x in inputs:
        weight = layer.get_parameter("weight")
        dim = -1 if isinstance(layer, nn.Linear) else x.ndim - weight.ndim + 1
        rows = x.transpose(dim, -1).reshape(-1, x.shape[dim])
        lows.append(rows.amin(0))
        highs.append(rows.amax(0))
    low, high = torch.stack(lows).amin(0).cpu(), torch.stack(highs).amax(0).cpu()
    return low[reader.index], high[reader.index]


def folds_exactly(layer: nn.Module) -> bool:
    """Whether a constant input channel can go into the layer's bias without error."""
    if isinstance(layer, nn.Linear):
        return True
    if not isinstance(layer, CONV):
        return False
    padded = layer.padding != "valid" if isinstance(layer.padding, str) else any(layer.padding)
    return not padded or layer.padding_mode != "zeros"


def surgery(
    model: nn.Module, pairs: list[tuple[Coupling, Verdict]], seen: dict[str, list[Tensor]]
) -> Surgery:
    """The cuts and folds of all verdicts together."""
    cuts: list[Cuts] = []
    folds: Folds = {}
    for coupling, verdict in pairs:
        for member in coupling.members:
            cuts.append(cuts_of(model, member, verdict.dead))
            if member.role == "reads":
                extra = fold(model, member, verdict.dead, seen[member.layer])
                if extra is not None:
                    folds[member.layer] = folds[member.layer] + extra if member.layer in folds else extra
    return Surgery(tuple(verdict for _, verdict in pairs), merged(cuts), folds)


def fold(model: nn.Module, reader: Member, dead: Tensor, inputs: list[Tensor]) -> Tensor | None:
    """c·Σ W[:, i] over the dead channels i that carry a constant c; None where all are zero."""
    layer = model.get_submodule(reader.layer)
    low, high = extent(layer, reader, inputs)
    gone = dead[reader.root] & ~zero_slices(model, reader)
    constant = torch.where(gone, 0.5 * (low + high), 0.0).double()
    if not bool(constant.any()):
        return None
    weight = layer.get_parameter("weight").detach().double()
    sums = weight.reshape(*weight.shape[:2], -1).sum(2)
    return sums[:, reader.index] @ constant.to(weight.device)
