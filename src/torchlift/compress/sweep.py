"""The whole network, layer by layer from input to output: cut, quantize, measure."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.channels.costs import Costs, costs_of, sizes_by_count
from torchlift.channels.cuts import Cuts
from torchlift.channels.scores import WIDTH, cut_evenly
from torchlift.compress.allocation import Option, allocate_cuts
from torchlift.compress.calibration import Calibration
from torchlift.compress.cutting import Channels, cut_channels, kept_rows, rank_channels
from torchlift.compress.distance import output_error
from torchlift.compress.free_targets import freedoms
from torchlift.compress.journal import StepJournal, StepTensors
from torchlift.compress.linear_maps import EmbeddingMap, LinearMap, maps_of
from torchlift.compress.norms import correct_norms
from torchlift.compress.replay import Replay
from torchlift.compress.solve import LayerProblem, SolvedLayer, WeightForm, tried, write_layer
from torchlift.compress.stream import FREE_PASSES, NEVER, LayerStream, first_calls, first_names, waves
from torchlift.errors import TorchliftError

BITS = (2, 3, 4, 5, 6, 8)
SENSED = 3
"""The bits at which a layer's sensitivity is measured."""

SENSITIVITY_SAMPLES = 64


@dataclasses.dataclass(frozen=True, eq=False)
class SweepState:
    """A network on its way: its layers' maps, and what was cut."""

    work: nn.Module
    cuts: Cuts = dataclasses.field(default_factory=dict[tuple[str, int], Tensor])
    errors: dict[str, float] = dataclasses.field(default_factory=dict[str, float])
    forms: dict[str, WeightForm] = dataclasses.field(default_factory=dict[str, WeightForm])


@dataclasses.dataclass(frozen=True, eq=False)
class Sweep:
    """One call's network, data and choices."""

    original: nn.Module
    calibration: Calibration
    journal: StepJournal
    tell: Callable[[str], None]
    chosen: Callable[[str], bool]
    """Whether a weight, by its name, is to be compressed."""
    refit: bool = True
    """Whether layers are solved again for what reaches them."""
    surgeon: bool = True
    """Whether channels are chosen by what their readers miss; otherwise by the size of their weights."""
    plain: bool = False
    """Whether norms stay in the network and are made plain before it is written."""

    def maps(self, model: nn.Module) -> list[LinearMap]:
        """The linear maps that are to be compressed."""
        return [m for m in maps_of(model)[0] if self.chosen(m.weight)]

    def start(self) -> SweepState:
        """The network as it is; every layer must run on the calibration data."""
        maps = self.maps(self.original)
        ran = first_calls(self.original, maps, self.calibration)
        never = next((m.weight for m in maps if m.weight not in ran), None)
        if never is not None:
            raise TorchliftError(NEVER.format(never, never))
        return SweepState(self.original)

    def stream(
        self, state: SweepState, previous: nn.Module | None = None
    ) -> tuple[LayerStream, list[LinearMap]]:
        """Both networks, and the maps of the one at work; targets move by a ``previous`` sweep's network."""
        maps = self.maps(state.work)
        ran = first_calls(state.work, maps, self.calibration)
        rows = kept_rows(maps, self.original, state.cuts)
        names = first_names(state.work, maps)
        few = self.calibration.first(2)
        free = freedoms(self.original, few)
        replay = Replay.of(self.original, state.work, few, self.calibration.samples)
        return LayerStream(
            self.original, state.work, self.calibration, ran, rows, names, previous, free, replay
        ), maps

    def channels(self, state: SweepState) -> tuple[Channels, Costs]:
        """The coupled channels that may be cut, and what the network costs without some of them."""
        every, _ = maps_of(state.work)
        ran = first_calls(state.work, every, self.calibration)
        stream = LayerStream(self.original, state.work, self.calibration, ran)
        maps = [m for m in every if m.weight in ran]
        channels = Channels.of(stream, maps, lambda name: not self.chosen(name))
        return channels, costs_of(state.work, channels.trace)

    def cut(
        self, state: SweepState, ratio: float, *, allocate: bool = True, round_to: int = WIDTH
    ) -> SweepState:
        """Without so many of the channels, those worth least; every reader refit."""
        channels, costs = self.channels(state)
        groups = {c.name: c for c in channels.free if round(ratio * c.channels)}
        even = {name: cut_evenly(c.channels, ratio, round_to) for name, c in groups.items()}
        counts = {name: count for name, (count, _) in even.items()}
        stream, maps = self.stream(SweepState(copy.deepcopy(state.work), state.cuts))

        def change() -> float:
            return self.output_error(stream.work, brief=True)

        ranks = rank_channels(
            stream, channels, maps, counts, self.journal, change, whole=allocate, surgeon=self.surgeon
        )
        if allocate:
            costs_by_count = {name: rank.costs.tolist() for name, rank in ranks.items() if len(rank.costs)}
            sizes = sizes_by_count(costs, {name: c.roots for name, c in groups.items()})
            steps = {name: step for name, (_, step) in even.items() if step > 1 and name in costs_by_count}
            counts = allocate_cuts(counts, costs_by_count, sizes, steps)
        gone = {name: rank.gone(groups[name].channels, counts[name]) for name, rank in ranks.items()}
        small, cuts = cut_channels(stream, channels, maps, gone, self.journal, self.tell, repair=self.refit)
        after = SweepState(small, cuts)
        correct_norms(self.original, small, self.calibration, cuts)
        return after

    def solve(self, state: SweepState, forms: Mapping[str, WeightForm], *, again: bool = False) -> SweepState:
        """Every layer in its form, one after the other, each for what the layers before it have become.

        ``again``: the network was solved before, and its layers' targets move.
        """
        previous = state.work if again else None
        state = SweepState(copy.deepcopy(state.work), state.cuts, forms=dict(forms))
        stream, maps = self.stream(state, previous)
        for wave in waves(maps, stream.ran, stream.names):
            self.tell(wave[0].module)
            step = self.journal(lambda wave=wave: self.solved(stream, wave, forms))
            for one in leading(stream, wave):
                key = stream.key(one)
                own = {k.rpartition("|")[2]: v for k, v in step.items() if k.rpartition("|")[0] == key}
                write_layer(one, state.work, SolvedLayer(**own))
                state.errors[key] = float(own["error"])
        return state

    def solved(
        self, stream: LayerStream, wave: list[LinearMap], forms: Mapping[str, WeightForm]
    ) -> StepTensors:
        """The layers of one wave, solved."""
        step: StepTensors = {}
        moments = stream.moments(wave)
        for one in leading(stream, wave):
            layer = LayerProblem.of(one, stream.work, moments.pop(stream.key(one)), refit=self.refit)
            solution = self.freed(stream, layer, forms.get(stream.key(one), WeightForm()))
            step |= {f"{stream.key(one)}|{name}": value for name, value in solution.tensors().items()}
        return step

    def freed(self, stream: LayerStream, layer: LayerProblem, form: WeightForm) -> SolvedLayer:
        """A layer solved, and where its targets are free solved again for the nearest of them."""
        (now,) = layer.solve(form)
        for _ in range(FREE_PASSES if self.refit and stream.free_maps([layer.one]) else 0):
            layer = layer.held_to(stream.retargeted(layer.one, layer.moments, now.weight, now.bias))
            now = layer.improved(now, form)
        return now

    def options(
        self, state: SweepState, forms: WeightForm
    ) -> tuple[dict[str, list[Option]], dict[str, float]]:
        """For each weight its sizes and costs at every number of bits, and its sensitivity."""
        stream, maps = self.stream(
            SweepState(copy.deepcopy(state.work), state.cuts)
        )  # layers are tried in it
        options: dict[str, list[Option]] = {}
        sensitivity: dict[str, float] = {}
        base = self.output_error(state.work, brief=True)
        for wave in waves(maps, stream.ran, stream.names):
            self.tell(wave[0].module)
            step = self.journal(lambda wave=wave: self.measured(stream, wave, forms))
            for one in leading(stream, wave):
                key = stream.key(one)
                size, error, moved = step[key].tolist()
                sensitivity[key] = max(moved[0] - base, 1e-12)
                scale = sensitivity[key] / max(error[BITS.index(SENSED)], 1e-30)
                options[key] = [Option(b, s, scale * e) for b, s, e in zip(BITS, size, error, strict=True)]
        return options, sensitivity

    def measured(self, stream: LayerStream, wave: list[LinearMap], form: WeightForm) -> StepTensors:
        """Sizes, errors and the output's change for each layer of a wave: (3, levels)."""
        step: StepTensors = {}
        moments = stream.moments(wave)
        for one in leading(stream, wave):
            layer = LayerProblem.of(one, stream.work, moments.pop(stream.key(one)), refit=self.refit)
            solved = layer.solve(*(dataclasses.replace(form, bits=bits) for bits in BITS))
            with tried(one, stream.work, solved[BITS.index(SENSED)]):
                moved = self.output_error(stream.work, brief=True)
            rows = [s.size for s in solved], [float(s.error) for s in solved], [moved] * len(BITS)
            step[stream.key(one)] = torch.tensor(rows, dtype=torch.float64)
        return step

    def output_error(self, model: nn.Module, *, brief: bool = False) -> float:
        """How far the outputs are from the original's; ``brief``: on the first samples."""
        return output_error(self.original, model, self.few() if brief else self.calibration)

    def few(self) -> list[Any]:
        """The first batches."""
        taken: list[Any] = []
        count = 0
        for inputs in self.calibration:
            taken.append(inputs)
            first = next(iter(inputs.values())) if isinstance(inputs, dict) else inputs[0]
            count += len(first)
            if count >= SENSITIVITY_SAMPLES:
                break
        return taken


def leading(stream: LayerStream, wave: list[LinearMap]) -> list[LinearMap]:
    """One map for each weight of a wave: of a tied one, that which has a Gram matrix of its own."""
    by_key: dict[str, LinearMap] = {}
    for one in wave:
        old = by_key.get(stream.key(one))
        if old is None or isinstance(old, EmbeddingMap):
            by_key[stream.key(one)] = one
    return list(by_key.values())
