"""Which channels can be cut without changing what the model computes: a proof from the weights.

A channel goes where every layer that reads it either ignores it (its column is zero in all rows that stay),
or is given a constant c whatever the input (see ``follow.constants``). c = 0 adds nothing. c ≠ 0 goes into
the reader's bias, b ← b + c·Σ W[:, i], which is exact for linear layers and unpadded convolutions; at the
border of a zero-padded one it is not, and the channel stays. Norms over all channels must be given exact
zeros.
"""

import dataclasses

import torch
from torch import Tensor, nn

from torchlift.channels.couplings import Coupling, Member
from torchlift.channels.follow import Trace
from torchlift.channels.follow.constants import CONSTANT, FIXED
from torchlift.channels.resizing import CONV, is_conv1d


@dataclasses.dataclass(frozen=True, eq=False)
class Decision:
    """What becomes of one coupling."""

    coupling: Coupling
    silent: Tensor
    """Boolean: channels that carry a constant, or that nobody writes or reads: what a mask meant."""
    dead: Tensor
    """Boolean: the channels that go."""
    why: str = ""
    """Why silent channels stay, if some do."""

    @property
    def cut(self) -> int:
        """How many channels go."""
        return int(self.dead.sum())


class Proof:
    """What a trace proves about a model's channels.

    ``one_size``: the model takes inputs of no other shape, so that what is fixed for this one is constant.
    ``exact``: norms over all channels may lose nothing but zeros.
    """

    def __init__(self, model: nn.Module, trace: Trace, *, one_size: bool, exact: bool) -> None:
        self.model, self.trace, self.exact = model, trace, exact
        self.weights = dict(model.named_parameters())
        readers, level = trace.readers, FIXED if one_size else CONSTANT
        self.constant = (readers.grade >= level) & readers.uniform
        self.value = readers.value
        roots = trace.labels.roots((readers.averaged < level).nonzero().flatten())
        self.averaged = torch.zeros(trace.labels.size, dtype=torch.bool)
        self.averaged[roots] = exact
        self.ignored = torch.zeros_like(self.averaged)
        """By label of a reader's slice: zero in all that stays."""

    def decisions(self, couplings: list[Coupling], round_to: int = 1) -> list[Decision]:
        """Decide for all couplings, until no cut makes the layer before it useless.

        What a round takes for ignored rests on the cuts of the round before: only where these are the same
        does the proof hold. Should that never come to be, the first round, which rests on none, stands.
        """
        first: list[Decision] = []
        gone = torch.zeros_like(self.averaged)
        considered = [(c, self.unwritten(c), self.readers(c)) for c in couplings]
        for _ in range(100):
            self.ignored = self.without(gone)
            decided = [rounded(v, round_to) for v in one_spared([self.decision(*one) for one in considered])]
            first = first or decided
            after = torch.zeros_like(gone)
            for decision in decided:
                after[decision.coupling.roots[decision.dead]] = True
            after = after[self.trace.labels.parent]
            if torch.equal(after, gone):
                return decided
            gone = after
        self.ignored = self.without(torch.zeros_like(gone))
        return first

    def without(self, gone: Tensor) -> Tensor:
        """Boolean, by label: no reader has anything but zeros there once the labels ``gone`` are cut."""
        ignored = self.trace.readers.reader.clone()
        for reading in self.trace.readers.readings:
            ignored[reading.labels] &= reading.ignored(gone)
        return ignored

    def decision(
        self, coupling: Coupling, unwritten: Tensor, readers: list[tuple[Member, Tensor]]
    ) -> Decision:
        """Decide for each channel of a coupling."""
        silent = unwritten.clone()
        if coupling.blocked:
            return Decision(coupling, silent, torch.zeros_like(silent), coupling.blocked)
        dead, still = torch.ones_like(silent), torch.ones_like(silent)
        why = ""
        for member, labels in readers:
            seen, ignored = self.trace.readers.reader[labels], self.ignored[labels]
            constant = self.constant[labels]
            folds = self.trace.readers.folds[labels] & (self.bias_for(member) is not None)
            fine = ~seen | ignored | (constant & ((self.value[labels] == 0) | folds))
            still[member.channel[~(ignored | constant) & seen]] = False
            dead[member.channel[~fine]] = False
            stay = ~fine & constant
            if not why and bool(stay.any()):
                why = (
                    f"{len(member.channel[stay].unique())} zero channels stay: {member.name} cannot take the "
                    "constant they emit into a bias (it pads with zeros, or has none to take it)"
                )
            if not why and bool((silent[member.channel] & ~fine).any()):
                why = f"zero channels stay: what reaches {member.name} from them is not constant"
        averaged = self.averaged[coupling.roots]
        if bool((averaged & dead).any()):
            why = why or "a norm over all channels averages over them, and they are not zero"
            dead &= ~averaged
        silent |= still
        if not bool(silent.any() or dead.any()):
            why = "all channels are in use"
        if bool(dead.all()):
            dead[0] = False
            why = why or "all channels are dead: one is kept"
        return Decision(coupling, silent, dead, why)

    def unwritten(self, coupling: Coupling) -> Tensor:
        """Channels whose slices of all weight matrices that write them are exactly zero."""
        silent = torch.ones(coupling.channels, dtype=torch.bool)
        matrices = [
            m for m in coupling.of("writes") if m.name in self.weights and self.weights[m.name].ndim > 1
        ]
        for member in matrices:
            weight = self.weights[member.name].detach()
            zero = (weight == 0).transpose(0, member.dim).flatten(1).all(1).cpu()
            silent[member.channel[~zero[member.index]]] = False
        return silent & bool(matrices)

    def readers(self, coupling: Coupling) -> list[tuple[Member, Tensor]]:
        """The members that some layer reads, with the labels of their slices."""
        starts, reader = self.trace.starts, self.trace.readers.reader
        pairs = [(m, starts[m.name, m.dim] + m.index) for m in coupling.members]
        return [(m, labels) for m, labels in pairs if bool(reader[labels].any())]

    def bias_for(self, reader: Member) -> str | None:
        """The layer whose bias takes what one of its columns would have added; None if there is none."""
        start = self.trace.starts[reader.name, reader.dim]
        for name in (self.trace.readers.modules.get(start), reader.name.rpartition(".")[0]):
            layer = None if name is None else self.model.get_submodule(name)
            if isinstance(layer, (nn.Linear, *CONV)) or (layer is not None and is_conv1d(layer)):
                columns = 0 if is_conv1d(layer) else 1
                if layer.weight is self.weights.get(reader.name) and reader.dim == columns:
                    return name
        return None

    def fold(self, reader: Member, labels: Tensor, dead: Tensor) -> tuple[str, Tensor] | None:
        """(layer, c·Σ W[:, i]) over the dead channels i that carry a constant c; None where all are zero."""
        gone = dead[reader.channel] & ~self.ignored[labels]
        constant = torch.where(gone, self.value[labels], 0.0)
        name = self.bias_for(reader) if bool(constant.any()) else None
        if name is None:
            return None
        layer = self.model.get_submodule(name)
        weight = layer.get_parameter("weight").detach().double()
        weight = weight.t() if is_conv1d(layer) else weight
        sums = weight.reshape(*weight.shape[:2], -1).sum(2)
        return name, sums[:, reader.index] @ constant.to(weight.device)


def one_spared(decisions: list[Decision]) -> list[Decision]:
    """No dimension loses all its slices, whatever couplings share it: the first channel stays."""
    left: dict[tuple[str, int], int] = {}
    for decision in decisions:
        for member in decision.coupling.members:
            gone = int(decision.dead[member.channel].sum())
            left[member.name, member.dim] = left.get((member.name, member.dim), member.size) - gone
    done: list[Decision] = []
    for decision in decisions:
        empty = any(left[m.name, m.dim] == 0 for m in decision.coupling.members)
        dead = decision.dead.clone()
        if empty and bool(dead.any()):
            dead[int(dead.nonzero()[0])] = False
            for m in decision.coupling.members:
                left[m.name, m.dim] += 1
        done.append(dataclasses.replace(decision, dead=dead))
    return done


def rounded(decision: Decision, round_to: int) -> Decision:
    """Fewer cuts, so that the channels left are a multiple, where they were one."""
    left = decision.coupling.channels - decision.cut
    if round_to < 2 or not decision.cut or decision.coupling.channels % round_to:
        return decision
    back = -left % round_to
    dead = decision.dead.clone()
    dead[dead.nonzero().flatten()[:back]] = False
    why = decision.why or (f"{back} stay to leave a multiple of {round_to}" if back else "")
    return dataclasses.replace(decision, dead=dead, why=why)
