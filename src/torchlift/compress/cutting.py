"""Channels, heads and units cut where their readers miss them least, and the readers refit.

Sets of coupled channels are ranked from the last to the first, so that what only serves channels that go is
not missed; the costs of a channel add up over all layers that read it. They are cut from the first to the
last: each reader is refit for what reaches it then. What goes is zero in all that writes it, so that the
network runs on in its old shape, and is cut out at the end.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from torchlift.channels.couplings import Coupling, Member
from torchlift.channels.cuts import Cuts
from torchlift.channels.dead_channels import Decision
from torchlift.channels.equality import difference, same_function
from torchlift.channels.follow import Trace, traced
from torchlift.channels.scores import PruningChoice, chosen_channels, scores_of
from torchlift.channels.shrink import decided
from torchlift.channels.surgery import apply_surgery, surgery, usable
from torchlift.compress.linear_maps import BlockedMap, EmbeddingMap, LinearMap, Projections
from torchlift.compress.moments import LayerMoments
from torchlift.compress.refit import LeastSquares, bias_for
from torchlift.compress.stream import FREE_PASSES, LayerStream
from torchlift.compress.surgeon import Surgeon, removal_order
from torchlift.packed.trees import Describer, UnlistedError


@dataclasses.dataclass(frozen=True, eq=False)
class Channels:
    """The coupled channels of a network that can be cut, in the order in which they are read."""

    trace: Trace
    free: list[Coupling]
    blocked: dict[str, str]
    """Why others stay."""

    @classmethod
    def of(
        cls, stream: LayerStream, maps: Sequence[LinearMap], left_alone: Callable[[str], bool]
    ) -> "Channels":
        """Follow the network."""
        example = stream.calibration.first(2)
        trace, _ = traced(stream.work, example, values=False)
        couplings = usable(stream.work, trace, example)
        kept = {
            c.name: "left alone by where= or keep="
            for c in couplings
            if any(left_alone(m.name) for m in c.of("writes"))
        }
        blocked = {c.name: c.blocked for c in couplings if c.blocked} | kept
        free = [c for c in couplings if not c.blocked and c.name not in kept]
        order = {m.weight: stream.ran[m.weight].order for m in maps}
        first = {
            id(c): min((order[m.name] for m in c.of("reads") if m.name in order), default=0) for c in free
        }
        return cls(trace, sorted(free, key=lambda c: first[id(c)]), blocked)


@dataclasses.dataclass(frozen=True, eq=False)
class ChannelReader:
    """A layer that reads coupled channels: its columns of each channel."""

    one: LinearMap
    columns: Tensor
    """(groups, channels, width), −1 where a channel has fewer columns."""


def readers_of(coupling: Coupling, maps: Mapping[str, LinearMap], work: nn.Module) -> list[ChannelReader]:
    """The layers that read the channels of a coupling and can be refit."""
    readers: list[ChannelReader] = []
    for member in coupling.of("reads"):
        one = maps.get(member.name)
        if one is None or isinstance(one, EmbeddingMap) or member.dim != one.columns_dim:
            continue
        layer = work.get_submodule(one.module)
        groups, _, inputs = one.matrix(layer, one.weight_of(work)).shape
        if groups > 1 and not isinstance(one, Projections | BlockedMap):
            continue
        readers.append(
            ChannelReader(
                one, columns_of(member, coupling.channels, groups, inputs, isinstance(one, BlockedMap))
            )
        )
    return readers


def columns_of(member: Member, channels: int, groups: int, inputs: int, split: bool) -> Tensor:
    """Which columns of a reader's matrices each channel is."""
    taps = inputs * (groups if split else 1) // member.size
    order = member.channel.argsort(stable=True)
    channel, index = member.channel[order], member.index[order]
    counts = torch.bincount(channel, minlength=channels)
    table = torch.full((channels, int(counts.max()), taps), -1)
    within = torch.arange(len(channel)) - (counts.cumsum(0) - counts)[channel]
    table[channel, within] = index[:, None] * taps + torch.arange(taps)
    table = table.flatten(1)
    if not split:
        return table.expand(groups, -1, -1)
    return torch.stack([own_block(table, g * inputs, inputs) for g in range(groups)])


def own_block(table: Tensor, start: int, width: int) -> Tensor:
    """The columns that lie in one block, counted from its start, first in each row."""
    inside = (table >= start) & (table < start + width)
    return torch.where(inside, table - start, -1).sort(1, descending=True).values


@dataclasses.dataclass(frozen=True, eq=False)
class Ranking:
    """The channels of a coupling in the order in which they may go."""

    order: Tensor
    costs: Tensor
    """The output error, as far as it is foretold, without the first 0, 1, 2, … of them; empty: not known."""

    def gone(self, channels: int, count: int) -> Tensor:
        """Boolean: the first ``count`` channels of the order."""
        mask = torch.zeros(channels, dtype=torch.bool)
        mask[self.order[:count]] = True
        return mask


def rank_channels(
    stream: LayerStream,
    channels: Channels,
    maps: Sequence[LinearMap],
    counts: Mapping[str, int],
    journal: Callable[[Callable[[], dict[str, Tensor]]], dict[str, Tensor]],
    change: Callable[[], float],
    *,
    whole: bool,
    surgeon: bool = True,
) -> dict[str, Ranking]:
    """An order of each coupling's channels, from the last coupling to the first.

    A reader's outputs that go themselves count no more: what reads only for them is not missed. ``change`` is
    the error of the network's output as it is; with ``whole`` the order goes on beyond ``counts``, and costs
    are in units of it.
    """
    by_name = {m.weight: m for m in maps}
    stream = dataclasses.replace(stream, replay=None)  # layers are taken from the last to the first
    rankings: dict[str, Ranking] = {}
    gone: dict[str, Tensor] = {}
    for coupling in reversed(channels.free):
        count = min(counts.get(coupling.name, 0), coupling.channels - 1)
        if count <= 0:
            continue
        readers = readers_of(coupling, by_name, stream.work) if surgeon else []
        left = {r.one.weight: left_rows(r.one, stream.work, channels.free, gone) for r in readers}

        def rank(
            coupling: Coupling = coupling,
            readers: list[ChannelReader] = readers,
            left: dict[str, Tensor] = left,
            count: int = count,
        ) -> dict[str, Tensor]:
            return ranked(stream, coupling, readers, left, count, change, whole=whole)

        rankings[coupling.name] = Ranking(**journal(rank))
        gone[coupling.name] = rankings[coupling.name].gone(coupling.channels, count)
    return rankings


def left_rows(
    one: LinearMap, work: nn.Module, free: Sequence[Coupling], gone: Mapping[str, Tensor]
) -> Tensor:
    """(groups, r), Boolean: the outputs of a layer that stay."""
    layer, weight = work.get_submodule(one.module), one.weight_of(work)
    groups, rows, _ = one.matrix(layer, weight).shape
    left = torch.ones(weight.shape[one.rows_dim], dtype=torch.bool)
    for coupling in free:
        for member in coupling.of("writes") if coupling.name in gone else ():
            if (member.name, member.dim) == (one.weight, one.rows_dim):
                left[member.index[gone[coupling.name][member.channel]]] = False
    return left.expand(groups, -1) if isinstance(one, BlockedMap) else left.reshape(groups, rows)


def ranked(
    stream: LayerStream,
    coupling: Coupling,
    readers: Sequence[ChannelReader],
    left: Mapping[str, Tensor],
    count: int,
    change: Callable[[], float],
    *,
    whole: bool,
) -> dict[str, Tensor]:
    """The order of one coupling's channels and, with ``whole``, their costs."""
    if not readers:
        choice = PruningChoice(ratio=count / coupling.channels)
        (gone,) = chosen_channels([coupling], scores_of(stream.work, [coupling], choice), choice)
        return {"order": gone.nonzero().flatten(), "costs": torch.zeros(0)}
    moments = stream.moments([r.one for r in readers])
    surgeons = [surgeons_of(stream, r, moments[stream.key(r.one)], left[r.one.weight]) for r in readers]
    every = [s for some in surgeons for s in some]
    order, paid = removal_order(every, torch.arange(coupling.channels), count)
    if not whole:
        return {"order": order, "costs": torch.zeros(0)}
    before = change()
    written: dict[str, Tensor] = {}
    for reader, some in zip(readers, surgeons, strict=True):
        matrix = matrix_of(reader.one, stream.work)
        for group, surgeon in enumerate(some):
            matrix[group, left[reader.one.weight][group]] = surgeon.weight.to(matrix)
        written |= refit(stream.work, reader.one, moments[stream.key(reader.one)], matrix)
    with values(stream.work, written):
        unit = max(change() - before, 0.0) / max(float(paid.sum()), 1e-30)
    gone = torch.zeros(coupling.channels, dtype=torch.bool)
    gone[order] = True
    rest = (~gone).nonzero().flatten()
    more, also = removal_order(every, rest, len(rest) - 1)
    costs = torch.cat([torch.zeros(1).double(), torch.cat([paid, also]).clamp(min=0).cumsum(0)])
    return {"order": torch.cat([order, more]), "costs": unit * costs}


def matrix_of(one: LinearMap, work: nn.Module) -> Tensor:
    """A layer's weight as matrices, to be written into."""
    return one.matrix(work.get_submodule(one.module), one.weight_of(work)).clone()


def surgeons_of(
    stream: LayerStream, reader: ChannelReader, moments: LayerMoments, left: Tensor
) -> list[Surgeon]:
    """A surgeon for each group of a layer, for the outputs ``left`` (groups, r); their costs are relative to
    what the whole layer puts out."""
    problem = problem_of(stream, reader, moments)
    energy = float(problem.energy[left].sum())
    surgeons: list[Surgeon] = []
    for group, own in enumerate(reader.columns):
        rows = left[group]
        quadratic = dataclasses.replace(
            problem,
            hessian=problem.hessian[group : group + 1],
            linear=problem.linear[group : group + 1, :, rows],
            energy=problem.energy[group : group + 1, rows],
        )
        surgeons.append(Surgeon.of(quadratic, own))
        surgeons[-1].scale = 1 / energy if energy > 0 else 1.0
    return surgeons


def problem_of(stream: LayerStream, reader: ChannelReader, moments: LayerMoments) -> LeastSquares:
    """A reader's least-squares problem; the moments stay whole for others that are tied to it."""
    bias = reader.one.bias_of(stream.work) is not None
    moments = dataclasses.replace(moments, xx=moments.xx.clone())
    return LeastSquares.of(moments, matrix_of(reader.one, stream.work), bias=bias)


@contextlib.contextmanager
def values(model: nn.Module, written: Mapping[str, Tensor]) -> Generator[None]:
    """Other values of some parameters for a while."""
    named = dict(model.named_parameters(remove_duplicate=False))
    before = {name: named[name].detach().clone() for name in written}
    overwrite(model, written)
    try:
        yield
    finally:
        overwrite(model, before)


@torch.no_grad()
def overwrite(model: nn.Module, written: Mapping[str, Tensor]) -> None:
    """Put values into parameters, by name."""
    named = dict(model.named_parameters(remove_duplicate=False))
    for name, value in written.items():
        named[name].copy_(value)


def refit(work: nn.Module, one: LinearMap, moments: LayerMoments, matrix: Tensor) -> dict[str, Tensor]:
    """A layer's new weight and bias, by name."""
    layer, weight, bias = work.get_submodule(one.module), one.weight_of(work), one.bias_of(work)
    tensors = {one.weight: one.tensor(layer, matrix.to(weight), weight.shape)}
    if bias is not None:
        tensors[f"{one.module}.{one.bias_leaf}".removeprefix(".")] = (
            bias_for(moments, matrix).reshape(bias.shape).to(bias)
        )
    return tensors


def cut_channels(
    stream: LayerStream,
    channels: Channels,
    maps: Sequence[LinearMap],
    gone: Mapping[str, Tensor],
    journal: Callable[[Callable[[], dict[str, Tensor]]], dict[str, Tensor]],
    tell: Callable[[str], None],
    *,
    repair: bool = True,
) -> tuple[nn.Module, Cuts]:
    """The network without the channels ``gone`` (Boolean, by coupling), every reader refit from the first to
    the last, and the cuts of every tensor."""
    by_name = {m.weight: m for m in maps}
    dead: list[Coupling] = []
    cut = [coupling for coupling in channels.free if coupling.name in gone]
    for number, coupling in enumerate(cut):
        tell(coupling.name)
        unsettled = {m.name.rpartition(".")[0] for c in cut[number:] for m in c.members}
        readers = readers_of(coupling, by_name, stream.work) if repair else []
        if readers:
            own = gone[coupling.name]
            overwrite(stream.work, journal(lambda r=readers, g=own, u=unsettled: without(stream, r, g, u)))
        dead.append(coupling)  # a refit must not bring back what went before
        silence(stream.work, dead, [gone[c.name] for c in dead])
    return operated(stream, channels, gone)


def without(
    stream: LayerStream, readers: Sequence[ChannelReader], gone: Tensor, unsettled: Iterable[str]
) -> dict[str, Tensor]:
    """The readers' ridge solutions on the columns that stay, by name; ``unsettled``: modules that change
    yet."""
    moments = stream.moments([r.one for r in readers], unsettled)
    written: dict[str, Tensor] = {}
    for reader in readers:
        own = moments[stream.key(reader.one)]
        problem = problem_of(stream, reader, own)
        matrix = torch.zeros_like(problem.linear.mT)
        factors: list[tuple[Tensor, Tensor]] = []
        for group, columns in enumerate(reader.columns):
            lost = columns[gone].flatten()
            stays = torch.ones(matrix.shape[-1], dtype=torch.bool)
            stays[lost[lost >= 0]] = False
            factors.append((stays, torch.linalg.cholesky(problem.hessian[group][stays][:, stays])))
        for left in reversed(range(1 + (FREE_PASSES if stream.free_maps([reader.one]) else 0))):
            for group, (stays, factor) in enumerate(factors):
                matrix[group][:, stays] = torch.cholesky_solve(problem.linear[group][stays], factor).mT
            if left:
                bias = bias_for(own, matrix) if reader.one.bias_of(stream.work) is not None else None
                own = stream.retargeted(reader.one, own, matrix, bias)
                problem = problem.held_to(own, bias=bias is not None)
        written |= refit(stream.work, reader.one, own, matrix)
    return written


@torch.no_grad()
def silence(model: nn.Module, groups: Sequence[Coupling], gone: Sequence[Tensor]) -> None:
    """Zero all that writes or scales the channels ``gone`` (Boolean), in place."""
    weights = dict(model.named_parameters())
    for coupling, dead in zip(groups, gone, strict=True):
        for member in coupling.of("writes"):
            if member.name in weights:
                weight = weights[member.name]
                weight.index_fill_(member.dim, member.index[dead[member.channel]].to(weight.device), 0)


def operated(stream: LayerStream, channels: Channels, gone: Mapping[str, Tensor]) -> tuple[nn.Module, Cuts]:
    """The network without the channels, computing what it computed with them at zero, and what was cut."""
    example = stream.calibration.first(2)
    decisions = [Decision(c, gone[c.name], gone[c.name]) for c in channels.free if c.name in gone]
    done = surgery(decisions)
    exact = self_contained(stream.work)  # a class of the user has its own norms: refits make up
    small = apply_surgery(stream.work, channels.trace, done, exact=exact).eval()
    if same_function(stream.work, small, example) or not (
        exact or difference(stream.work, small, [example]) == math.inf
    ):
        return small, done.cuts
    proved, done, _, _ = decided(stream.work, example)  # constants to fold, or a cut that is not possible
    return (stream.work, {}) if proved is None else (proved.eval(), done.cuts)


def self_contained(model: nn.Module) -> bool:
    """Whether the file holds the model's layers; otherwise they are those of a class of the user."""
    try:
        Describer().describe(model)
    except UnlistedError:
        return False
    return True


def kept_rows(maps: Sequence[LinearMap], original: nn.Module, cuts: Cuts) -> dict[str, Tensor]:
    """The outputs of each layer that are left, for layers that lost some."""
    kept: dict[str, Tensor] = {}
    for one in maps:
        lost = cuts.get((one.weight, one.rows_dim))
        if lost is not None and not isinstance(one, BlockedMap):
            keep = torch.ones(one.weight_of(original).shape[one.rows_dim], dtype=torch.bool)
            keep[lost] = False
            kept[one.weight] = keep.nonzero().flatten()
    return kept
