"""Which channels can be cut without changing what the model computes, and what must be folded for it.

A channel is cut where every layer that reads it either ignores it (a zero column), or is given a constant c
whatever the input and whatever the weights that are not zero. c = 0 adds nothing. c ≠ 0 goes into the
reader's bias, b ← b + c·Σ W[:, i], which is exact for linear layers and unpadded convolutions; at the border
of a zero-padded one it is not, and the channel stays. Norms over all channels must find exact zeros.
"""

import dataclasses

import torch
from torch import Tensor, nn

from torchlift.channels.constant_folding import Folds, fold, target
from torchlift.channels.couplings import Coupling, Member
from torchlift.channels.cuts import Cuts, cuts_of, merged
from torchlift.channels.follow import Trace

Reasons = dict[str, str]


@dataclasses.dataclass(frozen=True, eq=False)
class Verdict:
    """What becomes of one coupling."""

    coupling: Coupling
    silent: Tensor
    """Boolean: channels that carry a constant, or that nobody writes: what a mask meant to remove."""
    dead: Tensor
    """Boolean: the channels that go."""
    why: str = ""
    """Why silent channels stay, if some do."""

    @property
    def cut(self) -> int:
        """How many channels go."""
        return int(self.dead.sum())


def judge(model: nn.Module, found: Trace, coupling: Coupling, *, exact: bool = True) -> Verdict:
    """Decide for each channel of a coupling."""
    silent = unwritten(model, coupling)
    if coupling.blocked:
        return Verdict(coupling, silent, torch.zeros_like(silent), coupling.blocked)
    dead = torch.ones_like(silent)
    still = torch.ones_like(silent)
    why = ""
    for place, labels in readers(found, coupling):
        constant, zero = found.still.constant[labels], found.watch.zero[labels]
        seen = found.watch.reader[labels]
        folds = found.watch.folds[labels] & (target(model, found, place) is not None)
        quiet = constant & ((found.still.value[labels] == 0) | folds)
        fine = ~seen | zero | quiet
        still[place.channel[~(zero | constant) & seen]] = False
        dead[place.channel[~fine]] = False
        stay = ~fine & constant
        if not why and bool(stay.any()):
            why = (
                f"{len(place.channel[stay].unique())} zero channels stay: {place.name} cannot take the "
                "constant they emit into a bias (it pads with zeros, or has none to take it)"
            )
        if not why and bool((silent[place.channel] & ~fine).any()):
            why = f"zero channels stay: what reaches {place.name} from them is not constant"
    averaged = averages(found, coupling)
    if exact and bool((averaged & dead).any()):
        why = why or "a norm over all channels averages over them, and they are not zero"
        dead &= ~averaged
    silent |= still
    if not bool(silent.any() or dead.any()):
        why = "all channels are in use"
    if bool(dead.all()):
        dead[0] = False
        why = why or "all channels are dead: one is kept"
    return Verdict(coupling, silent, dead, why)


def unwritten(model: nn.Module, coupling: Coupling) -> Tensor:
    """Channels whose slices of all weight matrices that write them are exactly zero."""
    silent = torch.ones(coupling.channels, dtype=torch.bool)
    known = dict(model.named_parameters())
    matrices = [m for m in coupling.of("writes") if m.name in known and known[m.name].ndim > 1]
    for member in matrices:
        slices = (known[member.name].detach().transpose(0, member.dim).flatten(1) == 0).all(1).cpu()
        silent[member.channel[~slices[member.index]]] = False
    return silent & bool(matrices)


def readers(found: Trace, coupling: Coupling) -> list[tuple[Member, Tensor]]:
    """The members that some layer reads, with the labels of their slices."""
    start = {(place.name, place.dim): place.start for place in found.labels.places}
    pairs = [(m, start[m.name, m.dim] + m.index) for m in coupling.members]
    return [(m, labels) for m, labels in pairs if bool(found.watch.reader[labels].any())]


def averages(found: Trace, coupling: Coupling) -> Tensor:
    """Channels that reach a norm over all channels as something other than zero."""
    roots = found.labels.roots(found.watch.averaged.nonzero().flatten())
    return torch.isin(coupling.roots, roots)


@dataclasses.dataclass(frozen=True, eq=False)
class Surgery:
    """The verdicts on some couplings, and what they mean for the tensors."""

    verdicts: tuple[Verdict, ...]
    cuts: Cuts
    folds: Folds
    roots: Tensor
    """The labels of all channels that go."""


def surgery(model: nn.Module, found: Trace, verdicts: list[Verdict], *, folding: bool = True) -> Surgery:
    """The cuts and folds of all verdicts together; without ``folding``, for channels that carry zero."""
    folds: Folds = {}
    for verdict in verdicts if folding else []:
        for member, labels in readers(found, verdict.coupling):
            extra = fold(model, found, member, labels, verdict.dead)
            if extra is not None:
                name, amount = extra
                folds[name] = folds[name] + amount if name in folds else amount
    cuts = merged(cuts_of(v.coupling.members, v.dead) for v in verdicts)
    roots = [v.coupling.roots[v.dead] for v in verdicts]
    return Surgery(tuple(verdicts), cuts, folds, torch.cat([torch.zeros(0, dtype=torch.int64), *roots]))
