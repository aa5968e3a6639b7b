"""Passes over the calibration data: the original and the compressed network side by side, moments summed.

Layers are taken in the order in which they run. A pass ends as soon as the last layer it is for has run,
and keeps one
batch of these layers' outputs: activations are never all in memory.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.compress.calibration import Calibration
from torchlift.compress.free_targets import Freedom
from torchlift.compress.lags import Lags, lagged_gram
from torchlift.compress.linear_maps import EmbeddingMap, LayerCall, LinearMap
from torchlift.compress.moments import LayerMoments
from torchlift.compress.moving import pulls_of
from torchlift.compress.replay import Replay
from torchlift.compress.running import Enough, Hook, free_memory, listening, run
from torchlift.errors import TorchliftError

ROWS = 6
"""Rows of a layer's moments: at most so many for each of its inputs, and 16,384 where there are fewer."""

WAVES = 64
"""Passes of one sweep: beyond that, neighbours share one."""

FREE_PASSES = 2
"""Passes over the data in which free targets follow what a layer gives."""


@dataclasses.dataclass(frozen=True)
class Ran:
    """How a layer ran on the first batch."""

    order: int
    """Its number in the order of first calls."""
    calls: int
    tensor: int
    """Which tensor it reads: layers with the same one are solved in one pass."""
    positions: int
    lags: bool
    """Whether its Gram matrix is had from lags, however many positions there are."""


def first_calls(model: nn.Module, maps: Sequence[LinearMap], calibration: Calibration) -> dict[str, Ran]:
    """How each layer runs on the first batch, by the weight's name; one that does not run is left out."""
    ran: dict[str, Ran] = {}
    alive: list[Any] = []  # tensors are told apart by their numbers while they are alive
    by_module: dict[str, list[LinearMap]] = {}
    for one in maps:
        by_module.setdefault(one.module, []).append(one)

    def hook(name: str) -> Hook:
        def seen(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            del output
            alive.append((args, kwargs))
            tensor = args[0] if args else next(iter(kwargs.values()))
            for one in by_module[name]:
                old = ran.get(one.weight)
                if old is None:
                    call = args, kwargs
                    ran[one.weight] = Ran(
                        len(ran), 1, id(tensor), one.positions(layer, call), one.has_lags(layer)
                    )
                else:
                    ran[one.weight] = dataclasses.replace(old, calls=old.calls + 1)

        return seen

    with listening(model, {name: hook(name) for name in by_module}):
        run(model, calibration.first(2))
    return ran


def waves(
    maps: Sequence[LinearMap], ran: dict[str, Ran], names: dict[str, str], limit: int = WAVES
) -> list[list[LinearMap]]:
    """Layers in the order of their first calls, those that are given the same tensor and tied ones
    together."""
    order = {key: min(ran[m.weight].order for m in maps if names[m.weight] == key) for key in names.values()}
    ordered = sorted(maps, key=lambda m: (order[names[m.weight]], ran[m.weight].order))
    grouped: list[list[LinearMap]] = []
    for one in ordered:
        same = grouped and ran[grouped[-1][0].weight].tensor == ran[one.weight].tensor
        twin = grouped and any(names[m.weight] == names[one.weight] for m in grouped[-1])
        grouped[-1].append(one) if same or twin else grouped.append([one])
    size = -(-len(grouped) // limit)
    return [[m for wave in grouped[k : k + size] for m in wave] for k in range(0, len(grouped), size)]


@dataclasses.dataclass(frozen=True, eq=False)
class LayerStream:
    """The original and the compressed network, and how their layers run."""

    original: nn.Module
    work: nn.Module
    calibration: Calibration
    ran: dict[str, Ran]
    rows: dict[str, Tensor] = dataclasses.field(default_factory=dict[str, Tensor])
    """The outputs of a layer that are left, by its weight's name, where some were cut."""
    names: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    """The first name of each tied weight."""
    previous: nn.Module | None = None
    """The network of the sweep before: with it, targets move (:mod:`torchlift.compress.moving`)."""
    free: dict[str, Freedom] = dataclasses.field(default_factory=dict[str, Freedom])
    """What is behind layers whose targets are free, by module (:mod:`torchlift.compress.free_targets`)."""
    replay: Replay | None = None
    """Where passes over layers in order start; None: at the input."""

    def moments(self, maps: Sequence[LinearMap], unsettled: Iterable[str] = ()) -> dict[str, LayerMoments]:
        """The moments of these layers over all batches and processes, by weight; tied weights summed.

        ``unsettled``: other modules that will change.
        """
        free_memory()
        totals: dict[str, LayerMoments] = {}
        looked_up = [m for m in maps if isinstance(m, EmbeddingMap)]
        read = [m for m in maps if not isinstance(m, EmbeddingMap)]
        boundary = None
        if self.replay is not None and read:
            boundary = self.replay.advance({*(m.module for m in maps), *unsettled})
        lags: dict[str, list[Lags]] = {}
        for number, inputs in enumerate(self.calibration if read else ()):
            self.add(totals, read, inputs, start=(number, boundary), lags=lags)
        for key, batches in lags.items():
            totals[key].xx += lagged_gram(batches).to(totals[key].xx)
        if self.replay is not None and read:
            self.replay.reached(boundary)
        for moments in totals.values():
            moments.reduce()
        for one in looked_up:
            add_lookup(totals, self.key(one), one.weight_of(self.work).detach(), self.calibration.samples)
        never = [m.weight for m in read if self.key(m) not in totals]
        if never:
            raise TorchliftError(NEVER.format(never[0], never[0]))
        return totals

    def free_maps(self, maps: Sequence[LinearMap]) -> list[LinearMap]:
        """Those whose targets are free."""
        return [m for m in maps if m.rows_are_outputs and m.module in self.free and self.previous is None]

    def retargeted(
        self, one: LinearMap, moments: LayerMoments, weight: Tensor, bias: Tensor | None
    ) -> LayerMoments:
        """The moments with the targets nearest to what a free layer gives with these weights."""
        fresh = moments.without_targets()
        boundary = None if self.replay is None else self.replay.boundary
        for number, inputs in enumerate(self.calibration):
            self.add({self.key(one): fresh}, [one], inputs, (weight, bias), start=(number, boundary))
        return dataclasses.replace(fresh.reduce(), xx=moments.xx)

    def add(
        self,
        totals: dict[str, LayerMoments],
        maps: Sequence[LinearMap],
        inputs: Any,
        trial: tuple[Tensor, Tensor | None] | None = None,
        start: tuple[int, str | None] = (0, None),
        lags: dict[str, list[Lags]] | None = None,
    ) -> None:
        """One batch through both networks; with the weights of a ``trial``, targets are the nearest to what
        they give, and Gram matrices are left alone. ``start``: the batch's number, and the boundary that its
        pass starts from or keeps."""
        targets: dict[str, list[Tensor]] = {}
        uppers: list[Tensor] = []
        thin = {m.weight: self.thinned(m) for m in maps}
        plain = [m.module for m in maps if m.rows_are_outputs]
        pulls = {} if self.previous is None else pulls_of(self.original, self.previous, plain, inputs)

        def rows_of(one: LinearMap, layer: nn.Module, call: LayerCall, output: Any) -> Tensor:
            y = one.targets(layer, call, output, thin[one.weight])
            rows = self.rows.get(self.key(one))
            return y if rows is None else y[:, rows.to(y.device)]

        def keep(one: LinearMap, layer: nn.Module, call: LayerCall, output: Any) -> None:
            if one.module in pulls:
                output = pulls[one.module].moved(output, one.channel_dim, self.rows.get(self.key(one)))
            if trial is not None:
                output, upper = self.free[one.module].box(self.original, output, one.channel_dim)
                uppers.append(rows_of(one, layer, call, upper))
            targets.setdefault(one.weight, []).append(rows_of(one, layer, call, output))

        def total(one: LinearMap, layer: nn.Module, call: LayerCall, output: Any) -> None:
            del output
            weight = one.matrix(layer, one.weight_of(self.work))
            y = None if one.own_targets else in_groups(targets[one.weight].pop(0), len(weight))
            upper = None if trial is None else in_groups(uppers.pop(0), len(weight))
            if self.key(one) not in totals:
                groups, outputs, wide = weight.shape
                totals[self.key(one)] = LayerMoments.zeros(groups, wide, outputs, weight.device)
            moments, done = totals[self.key(one)], 0
            own_lags = one.lags(layer, call) if thin[one.weight] is None and lags is not None else None
            for x in one.rows(layer, call, thin[one.weight]):
                own = x @ weight.mT if y is None else y[:, done : done + x.shape[1]]
                if trial is not None and upper is not None:
                    now = x @ trial[0].mT.to(x)
                    now = now if trial[1] is None else now + trial[1][:, None].to(x)
                    own = now.clamp(own, upper[:, done : done + x.shape[1]])
                moments.add(x, own, gram=own_lags is None and trial is None)
                done += x.shape[1]
            if own_lags is not None and lags is not None:
                lags.setdefault(self.key(one), []).append(own_lags)

        outer = [m for m in maps if not m.own_targets]
        if outer:
            self.through(self.original, outer, inputs, keep, start)
        self.through(self.work, maps, inputs, total, start)

    def key(self, one: LinearMap) -> str:
        """The name of a map's weight; the first one of a tied weight."""
        return self.names.get(one.weight, one.weight)

    def through(
        self,
        model: nn.Module,
        maps: Sequence[LinearMap],
        inputs: Any,
        visit: Callable[[LinearMap, nn.Module, LayerCall, Any], None],
        start: tuple[int, str | None],
    ) -> None:
        """Run a model up to the last of these layers, and visit each when it has run."""
        by_module: dict[str, list[LinearMap]] = {}
        for one in maps:
            by_module.setdefault(one.module, []).append(one)
        once = all(self.ran[m.weight].calls == 1 for m in maps)
        waiting = set(by_module)
        inside: set[str] = set()

        def hook(name: str) -> Hook:
            def seen(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
                if name in inside:
                    return
                inside.add(name)  # a layer that shows its own insides is not visited again
                for one in by_module[name]:
                    visit(one, layer, (args, kwargs), output)
                inside.discard(name)
                waiting.discard(name)
                if once and not waiting:
                    raise Enough

            return seen

        number, boundary = start
        short = contextlib.nullcontext()
        if self.replay is not None:
            short = self.replay.passing(model, number, inputs, boundary)
        with short, listening(model, {name: hook(name) for name in by_module}):
            run(model, inputs)

    def thinned(self, one: LinearMap) -> Tensor | None:
        """Positions of a convolution's output, evenly spread, where all of them would be far more than
        needed."""
        positions = self.ran[one.weight].positions
        layer = self.work.get_submodule(one.module)
        inputs = one.matrix(layer, one.weight_of(self.work)).shape[-1]
        wanted = -(-max(ROWS * inputs, 2**14) // self.calibration.samples)
        if positions <= wanted or self.ran[one.weight].lags:
            return None
        return torch.linspace(0, positions - 1, wanted).round().long()


def in_groups(y: Tensor, groups: int) -> Tensor:
    """(rows, all outputs) → (groups, rows, outputs of a group)."""
    return y.reshape(len(y), groups, -1).movedim(1, 0)


NEVER = "{!r} never ran on the calibration data: pass inputs that reach it, or leave it out with keep={!r}."


def add_lookup(totals: dict[str, LayerMoments], key: str, weight: Tensor, samples: int) -> None:
    """An embedding's moments: each entry of its weight counts for itself, as often as a row is looked up."""
    rows, features = weight.shape
    each = samples / rows
    if key not in totals:
        totals[key] = LayerMoments.zeros(1, features, rows, weight.device)
    moments = totals[key]
    moments.xx += each * torch.eye(features, device=weight.device)[None].to(moments.xx)
    moments.xy += each * weight.mT[None].to(moments.xy)
    moments.yy += each * weight.square().sum(1)[None].to(moments.yy)
    moments.count += 1


def first_names(model: nn.Module, maps: Iterable[LinearMap]) -> dict[str, str]:
    """The first name of every map's weight: tied ones share it."""
    first: dict[int, str] = {}
    return {m.weight: first.setdefault(id(m.weight_of(model)), m.weight) for m in maps}
