"""Channels, heads and units cut where their readers miss them least, and the readers refit.

Sets of coupled channels are taken in the order in which they are first read. The costs of a channel add up
over all
layers that read it; what goes is zero in all that writes it, so that the network runs on in its old shape,
and is cut
out at the end.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from torchlift.channels.couplings import Coupling, Member
from torchlift.channels.cuts import Cuts
from torchlift.channels.dead_channels import Verdict
from torchlift.channels.equality import difference, same
from torchlift.channels.follow import Trace, traced
from torchlift.channels.scores import Choice, chosen, scores_of
from torchlift.channels.shrink import decided
from torchlift.channels.surgery import operate, surgery, usable
from torchlift.compress.linear_maps import Blocks, LinearMap, Projections, Table
from torchlift.compress.moments import Moments
from torchlift.compress.refit import DAMPING, Quadratic, bias_for
from torchlift.compress.stream import Stream
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
    def of(cls, stream: Stream, maps: Sequence[LinearMap], left_alone: Callable[[str], bool]) -> "Channels":
        """Follow the network."""
        example = stream.calibration.first(2)
        trace, _ = traced(stream.work, example, values=False)
        known = usable(stream.work, trace, example)
        kept = {
            c.name: "left alone as asked" for c in known if any(left_alone(m.name) for m in c.of("writes"))
        }
        blocked = {c.name: c.blocked for c in known if c.blocked} | kept
        free = [c for c in known if not c.blocked and c.name not in kept]
        place = {m.weight: stream.ran[m.weight].place for m in maps}
        first = {
            id(c): min((place[m.name] for m in c.of("reads") if m.name in place), default=0) for c in free
        }
        return cls(trace, sorted(free, key=lambda c: first[id(c)]), blocked)


@dataclasses.dataclass(frozen=True, eq=False)
class Reader:
    """A layer that reads coupled channels: its columns of each channel."""

    one: LinearMap
    columns: Tensor
    """(groups, channels, width), −1 where a channel has fewer columns."""


def readers_of(coupling: Coupling, maps: Mapping[str, LinearMap], work: nn.Module) -> list[Reader]:
    """The layers that read the channels of a coupling and can be refit."""
    found: list[Reader] = []
    for member in coupling.of("reads"):
        one = maps.get(member.name)
        if one is None or isinstance(one, Table) or member.dim != one.columns_dim:
            continue
        layer = work.get_submodule(one.module)
        groups, _, inputs = one.matrix(layer, one.weight_of(work)).shape
        if groups > 1 and not isinstance(one, Projections | Blocks):
            continue
        found.append(
            Reader(one, columns_of(member, coupling.channels, groups, inputs, isinstance(one, Blocks)))
        )
    return found


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


def choose(
    stream: Stream,
    coupling: Coupling,
    readers: Sequence[Reader],
    moments: Mapping[str, Moments],
    count: int,
    damping: float = DAMPING,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Boolean: the ``count`` channels that go; the readers' weights and biases without them, by name."""
    surgeons: list[list[Surgeon]] = []
    for reader in readers:
        layer, weight = stream.work.get_submodule(reader.one.module), reader.one.weight_of(stream.work)
        bias = reader.one.bias_of(stream.work) is not None
        sums = moments[stream.key(reader.one)]
        problem = Quadratic.of(sums, reader.one.matrix(layer, weight), bias=bias, damping=damping)
        surgeons.append(surgeons_of(problem, reader.columns))
    order, _ = removal_order([s for some in surgeons for s in some], coupling.channels, count)
    written: dict[str, Tensor] = {}
    for reader, some in zip(readers, surgeons, strict=True):
        matrix = torch.stack([s.weight for s in some])
        written |= refit(stream.work, reader.one, moments[stream.key(reader.one)], matrix)
    gone = torch.zeros(coupling.channels, dtype=torch.bool)
    gone[order] = True
    return gone, written


def surgeons_of(problem: Quadratic, columns: Tensor) -> list[Surgeon]:
    """A surgeon for each group of a layer; their costs are relative to what the whole layer puts out."""
    energy = float(problem.energy.sum())
    made: list[Surgeon] = []
    for group, own in enumerate(columns):
        part = dataclasses.replace(
            problem,
            hessian=problem.hessian[group : group + 1],
            linear=problem.linear[group : group + 1],
            energy=problem.energy[group : group + 1],
        )
        made.append(Surgeon.of(part, own))
        made[-1].scale = 1 / energy if energy > 0 else 1.0
    return made


def refit(work: nn.Module, one: LinearMap, moments: Moments, matrix: Tensor) -> dict[str, Tensor]:
    """A layer's new weight and bias, by name."""
    layer, weight, bias = work.get_submodule(one.module), one.weight_of(work), one.bias_of(work)
    found = {one.weight: one.tensor(layer, matrix.to(weight), weight.shape)}
    if bias is not None:
        found[f"{one.module}.{one.bias_leaf}".removeprefix(".")] = (
            bias_for(moments, matrix).reshape(bias.shape).to(bias)
        )
    return found


def cut_channels(
    stream: Stream,
    channels: Channels,
    maps: Sequence[LinearMap],
    counts: Mapping[str, int],
    journal: Callable[[Callable[[], dict[str, Tensor]]], dict[str, Tensor]],
    tell: Callable[[str], None],
) -> tuple[nn.Module, dict[str, Tensor], Cuts]:
    """The smaller network, the channels that went by coupling, and the cuts of every tensor."""
    by_name = {m.weight: m for m in maps}
    gone: dict[str, Tensor] = {}
    for coupling in channels.free:
        count = min(counts.get(coupling.name, 0), coupling.channels - 1)
        tell(coupling.name)
        if count <= 0:
            continue
        step = journal(lambda c=coupling, n=count: cut_one(stream, c, by_name, n))
        gone[coupling.name] = step.pop("gone")
        named = dict(stream.work.named_parameters(remove_duplicate=False))
        with torch.no_grad():
            for name, value in step.items():
                named[name].copy_(value)
        dead = [c for c in channels.free if c.name in gone]  # a refit must not bring back what went before
        silence(stream.work, dead, [gone[c.name] for c in dead])
    small, cuts = operated(stream, channels, gone)
    return small, gone, cuts


@torch.no_grad()
def silence(model: nn.Module, groups: Sequence[Coupling], gone: Sequence[Tensor]) -> None:
    """Zero all that writes or scales the channels ``gone`` (Boolean), in place."""
    weights = dict(model.named_parameters())
    for coupling, dead in zip(groups, gone, strict=True):
        for member in coupling.of("writes"):
            if member.name in weights:
                weight = weights[member.name]
                weight.index_fill_(member.dim, member.index[dead[member.channel]].to(weight.device), 0)


def cut_one(
    stream: Stream, coupling: Coupling, maps: Mapping[str, LinearMap], count: int
) -> dict[str, Tensor]:
    """The channels of a coupling that go, and the weights of its readers without them."""
    readers = readers_of(coupling, maps, stream.work)
    if not readers:
        choice = Choice(ratio=count / coupling.channels)
        (gone,) = chosen([coupling], scores_of(stream.work, [coupling], choice), choice)
        return {"gone": gone}
    moments = stream.moments([r.one for r in readers])
    gone, written = choose(stream, coupling, readers, moments, count)
    return {"gone": gone, **written}


def operated(stream: Stream, channels: Channels, gone: Mapping[str, Tensor]) -> tuple[nn.Module, Cuts]:
    """The network without the channels, computing what it computed with them at zero, and what was cut."""
    example = stream.calibration.first(2)
    verdicts = [Verdict(c, gone[c.name], gone[c.name]) for c in channels.free if c.name in gone]
    done = surgery(verdicts)
    exact = self_contained(stream.work)  # a class of the user has its own norms: refits make up
    small = operate(stream.work, channels.trace, done, exact=exact).eval()
    if same(stream.work, small, example) or not (
        exact or difference(stream.work, small, [example]) == math.inf
    ):
        return small, done.cuts
    proved, done, _, _ = decided(stream.work, example)  # constants to fold, or a cut refused
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
    found: dict[str, Tensor] = {}
    for one in maps:
        lost = cuts.get((one.weight, one.rows_dim))
        if lost is not None and not isinstance(one, Blocks):
            keep = torch.ones(one.weight_of(original).shape[one.rows_dim], dtype=torch.bool)
            keep[lost] = False
            found[one.weight] = keep.nonzero().flatten()
    return found
