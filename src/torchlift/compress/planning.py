"""From targets to what each layer becomes: bits by a knapsack, cuts by what is left, both verified on the
network."""

import copy
import dataclasses
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from torchlift.channels.couplings import Coupling
from torchlift.channels.dead_channels import Decision
from torchlift.channels.folding import plain_norms
from torchlift.channels.scores import WIDTH, cut_evenly
from torchlift.channels.surgery import apply_surgery, surgery
from torchlift.compress.allocation import Option, knapsack
from torchlift.compress.cutting import Channels
from torchlift.compress.distance import output_error
from torchlift.compress.grid import short
from torchlift.compress.norms import correct_norms
from torchlift.compress.solve import WeightForm
from torchlift.compress.sweep import Sweep, SweepState
from torchlift.deploy.exporting import export
from torchlift.deploy.measuring import file_size, median_latency
from torchlift.errors import TorchliftError

WITHIN = 1e-4
"""The squared error of outputs within 1 %."""

RATIOS = tuple(k / 16 for k in range(15))
SHORT_SAMPLES, SHORTENED = 16, 1.02
"""Vectors are shortened where the outputs of so many samples are no further away than this many times."""

PARTS = 16
"""Ratios tried for a latency are k / PARTS."""

CORRECTIONS = 4

SLACK = 0.005
"""More of the bytes is left free after each file that was too large."""


@dataclasses.dataclass(frozen=True)
class Targets:
    """What the small network is to be; None: free."""

    bytes: int | None = None
    macs: float | None = None
    latency: float | None = None
    bits: int | None = None
    ratio: float | None = None
    sparsity: float = 0.0
    group: int | None = None
    accuracy: float | None = None
    allocate: bool = True
    integer: bool = False
    """Whether the latency is that of 8-bit integers in ONNX Runtime."""

    def __post_init__(self) -> None:
        if self.integer and self.latency is None:
            raise TorchliftError("integer=True says what latency= is measured with: pass latency=, too.")
        if self.bits is not None and (type(self.bits) is not int or not 2 <= self.bits <= 8):
            raise TorchliftError(f"bits is a whole number from 2 to 8; got {self.bits!r}.")
        for name in ("ratio", "sparsity", "bytes", "macs", "latency", "accuracy"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float | None):
                raise TorchliftError(f"{name} is a number; got {value!r}.")
        for name in ("ratio", "sparsity"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise TorchliftError(f"{name} lies in [0, 1); got {value!r}: 0.5 is a half.")
        for name in ("bytes", "macs", "latency"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise TorchliftError(f"{name} is a positive number; got {value!r}.")
        others = next((n for n in ("bytes", "bits", "latency", "macs") if getattr(self, n) is not None), None)
        if self.accuracy is not None and others is not None:
            raise TorchliftError(f"accuracy= says how good, {others}= how small: pass one of them.")
        if self.ratio is not None and (self.macs is not None or self.latency is not None):
            raise TorchliftError(
                "ratio= says how much is cut, macs= and latency= what is to be left: pass one of them."
            )

    @property
    def none(self) -> bool:
        """Whether there is no target."""
        targets = (self.bytes, self.macs, self.latency, self.bits, self.ratio, self.accuracy)
        return all(value is None for value in targets) and not self.sparsity

    @property
    def round_to(self) -> int:
        """Of which widths are multiples; MACs are counted to the channel."""
        return WIDTH if self.macs is None else 1

    @property
    def form(self) -> WeightForm:
        """What is the same for all layers."""
        return WeightForm(self.bits, self.group, self.sparsity)


Sensitivity = dict[str, float]


def compressed(
    sweep: Sweep, targets: Targets, sweeps: int = 1, score: Callable[[nn.Module], float] | None = None
) -> tuple[SweepState, Sensitivity]:
    """The network that meets the targets, with the sensitivities of its layers where they were measured."""
    state = sweep.start()
    if targets.accuracy is not None and score is not None:
        return accurate(sweep, state, targets, targets.accuracy, score)
    if (
        targets.bytes is not None
        and targets.ratio is None
        and targets.macs is None
        and targets.latency is None
    ):
        return within_bytes(sweep, state, targets, sweeps)
    ratio = ratio_for(sweep, state, targets)
    done = at_ratio(sweep, state, targets, ratio, sweeps)
    if targets.integer and targets.latency is not None:  # weights on their grids take a little longer
        while (least := integer_milliseconds(sweep, done[0].work)) > targets.latency:
            ratio += 1 / PARTS
            if ratio >= 1:
                raise impossible("latency", targets.latency, least)
            done = at_ratio(sweep, state, targets, ratio, sweeps)
    return done


def at_ratio(
    sweep: Sweep, state: SweepState, targets: Targets, ratio: float, sweeps: int
) -> tuple[SweepState, Sensitivity]:
    """Cut at a ratio, then every layer in its form."""
    if ratio:
        allocate = targets.allocate and targets.latency is None
        state = sweep.cut(state, ratio, allocate=allocate, round_to=targets.round_to)
    if targets.bytes is not None:
        return allocated(sweep, state, targets, targets.bytes)
    if targets.none:
        return nearly_equal(sweep, state, targets)
    forms = uniform(sweep, state, targets.form)
    return finished(sweep, state, forms, sweeps), {}


def uniform(sweep: Sweep, state: SweepState, form: WeightForm) -> dict[str, WeightForm]:
    """One form for all layers."""
    return {m.weight: form for m in sweep.maps(state.work)}


def finished(sweep: Sweep, state: SweepState, forms: dict[str, WeightForm], sweeps: int = 1) -> SweepState:
    """Every layer solved in its form, norms corrected; more sweeps move targets and are kept if they help."""
    best = sweep.solve(state, forms)
    correct_norms(sweep.original, best.work, sweep.calibration, best.cuts)
    for _ in range(sweeps - 1):
        again = sweep.solve(best, forms, again=True)
        correct_norms(sweep.original, again.work, sweep.calibration, again.cuts)
        if sweep.output_error(again.work) < sweep.output_error(best.work):
            best = again
    if on_grids(best):
        shorten(sweep, best.work)
    return best


def as_written(sweep: Sweep, state: SweepState) -> nn.Module:
    """The network as it is written: norms that stay in it scale nothing."""
    if not sweep.plain:
        return state.work
    plain = plain_norms(state.work, sweep.calibration.first(2), sweep.chosen)
    if on_grids(state):
        shorten(sweep, plain)
    return plain


def written_bytes(sweep: Sweep, state: SweepState) -> int:
    """Of the file that the network ends in."""
    return file_size(as_written(sweep, state))


def on_grids(state: SweepState) -> bool:
    """Whether any weights are on a grid."""
    return any(form.bits for form in state.forms.values())


@torch.no_grad()
def shorten(sweep: Sweep, work: nn.Module) -> None:
    """Biases, norms and other vectors with the bits of halves, where the outputs hardly move."""
    few = [sweep.calibration.first(SHORT_SAMPLES)]
    vectors = [
        value
        for name, value in work.state_dict().items()
        if value.ndim < 2 and value.is_floating_point() and sweep.chosen(name)
    ]
    whole = [value.clone() for value in vectors]
    before = output_error(sweep.original, work, few)
    for value in vectors:
        value.copy_(short(value))
    if not output_error(sweep.original, work, few) <= SHORTENED * before + torch.finfo(torch.float32).eps:
        for value, old in zip(vectors, whole, strict=True):
            value.copy_(old)


def allocated(
    sweep: Sweep, state: SweepState, targets: Targets, limit: int
) -> tuple[SweepState, Sensitivity]:
    """Bits for each layer under a number of bytes, verified on the file and corrected."""
    if targets.bits is not None:
        done = finished(sweep, state, uniform(sweep, state, targets.form))
        size = written_bytes(sweep, done)
        if size > limit:
            raise TorchliftError(
                f"bytes={limit:,} is not possible with bits={targets.bits}: this takes {size:,}."
            )
        return done, {}
    options, sensitivity = sweep.options(state, targets.form)
    least = {name: min(some, key=lambda o: o.size) for name, some in options.items()}
    most = {name: max(some, key=lambda o: o.size) for name, some in options.items()}
    rest = 0.0  # what the file holds beside the weights
    best: SweepState | None = None
    before: dict[str, Option] | None = None
    for _ in range(CORRECTIONS):
        allocation = knapsack(list(options.values()), limit - rest)
        picked = least if allocation is None else dict(zip(options, allocation, strict=True))
        if picked == before:
            break
        done, before = finished(sweep, state, forms_of(picked, targets)), picked
        size = written_bytes(sweep, done)
        if size <= limit:
            best = done
            if size > 0.95 * limit or picked == most:
                break
        if size > limit and picked == least:
            raise impossible("bytes", limit, size)
        own = size - sum(option.size for option in picked.values())
        rest = own if size <= limit else max(own, rest + SLACK * limit)
    if best is None:
        best = finished(sweep, state, forms_of(least, targets))
        size = written_bytes(sweep, best)
        if size > limit:
            raise impossible("bytes", limit, size)
    return best, sensitivity


def impossible(name: str, limit: float, least: float) -> TorchliftError:
    """What is said of a target out of reach."""
    return TorchliftError(
        f"{name}={limit:,g} is not possible: the least that this network allows is {least:,g}."
    )


def forms_of(picked: Mapping[str, Option], targets: Targets) -> dict[str, WeightForm]:
    """The chosen bits of each layer."""
    return {name: dataclasses.replace(targets.form, bits=o.level) for name, o in picked.items()}


def accurate(
    sweep: Sweep, state: SweepState, targets: Targets, least: float, score: Callable[[nn.Module], float]
) -> tuple[SweepState, Sensitivity]:
    """The fewest bytes that keep a score: the largest error of outputs at which it holds, by bisection."""
    whole = score(sweep.original)
    if whole < least:
        raise TorchliftError(f"accuracy={least:g} is not possible: the model itself has {whole:g}.")
    if targets.ratio:
        state = sweep.cut(state, targets.ratio, allocate=targets.allocate)
    options, sensitivity = sweep.options(state, targets.form)
    best: SweepState | None = None
    reached = 0.0
    low, high = 0, len(ERRORS) - 1
    while low <= high:
        middle = (low + high) // 2
        done = finished(sweep, state, forms_of(fewest_bytes(options, ERRORS[middle]), targets))
        reached = score(done.work)
        if reached >= least:
            best, low = done, middle + 1
        else:
            high = middle - 1
    if best is None:
        raise TorchliftError(
            f"accuracy={least:g} is not possible on these grids: with the most bits it is {reached:g}; "
            "set a lower one, or pass a smaller ratio."
        )
    return best, sensitivity


ERRORS = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)
"""Errors of the outputs that are tried for an accuracy."""


def fewest_bytes(options: Mapping[str, list[Option]], error: float) -> dict[str, Option]:
    """The knapsack with sizes and costs exchanged: the fewest bytes within an error of the outputs."""
    turned = [[Option(o.level, o.cost, o.size) for o in some] for some in options.values()]
    picked = knapsack(turned, error) or [some[-1] for some in options.values()]
    return dict(zip(options, picked, strict=True))


def nearly_equal(sweep: Sweep, state: SweepState, targets: Targets) -> tuple[SweepState, Sensitivity]:
    """The fewest bytes within 1 % of the outputs: the knapsack with sizes and costs exchanged, corrected
    once."""
    options, sensitivity = sweep.options(state, targets.form)
    limit = WITHIN
    best: SweepState | None = None
    for _ in range(CORRECTIONS):
        done = finished(sweep, state, forms_of(fewest_bytes(options, limit), targets))
        error = sweep.output_error(done.work)
        best = done if best is None or error <= WITHIN else best
        if error <= WITHIN:
            break
        limit *= 0.5 * WITHIN / error
        best = done
    assert best is not None
    return best, sensitivity


def within_bytes(
    sweep: Sweep, state: SweepState, targets: Targets, sweeps: int
) -> tuple[SweepState, Sensitivity]:
    """The best of a few ratios of cut channels, each with the bits that the bytes leave it; ratios grow as
    long as outputs come nearer."""
    limit = targets.bytes or 0
    best: tuple[float, SweepState, Sensitivity] | None = None
    failure: TorchliftError | None = None
    for ratio in ratios_for(sweep, state, limit, targets):
        try:
            done, sensitivity = at_ratio(sweep, state, targets, ratio, sweeps)
        except TorchliftError as error:
            failure = error
            continue
        apart = sweep.output_error(done.work)
        if best is not None and apart >= best[0]:
            break
        best = apart, done, sensitivity
    if best is None:
        assert failure is not None
        raise failure
    return best[1], best[2]


def ratios_for(sweep: Sweep, state: SweepState, limit: int, targets: Targets) -> list[float]:
    """Ratios of cut channels worth trying: those that leave 1½, 2 and 3 bits for each weight."""
    weights = sum(p.numel() for p in state.work.parameters())
    if 8 * limit / weights >= 3.5:
        return [0.0]
    try:
        channels, costs = sweep.channels(state)
    except TorchliftError:  # a network that cannot be followed is not cut
        return [0.0]
    left = {r: costs.parameters(first_roots(channels.free, r, WIDTH)) for r in RATIOS}
    wanted = [targets.bits] if targets.bits else [1.5, 2.0, 3.0]
    ratios = {min((r for r in RATIOS if 8 * limit / left[r] >= bits), default=RATIOS[-1]) for bits in wanted}
    return sorted(ratios)


def first_roots(free: list[Coupling], ratio: float, round_to: int = 1) -> Tensor:
    """Some channels of each coupling, as many as a ratio says: costs do not depend on which."""
    some = [c.roots[: cut_evenly(c.channels, ratio, round_to)[0]] for c in free]
    return torch.cat([torch.zeros(0, dtype=torch.int64), *some])


def ratio_for(sweep: Sweep, state: SweepState, targets: Targets) -> float:
    """The target ratio, or the least that meets MACs and latency."""
    if targets.macs is None and targets.latency is None:
        return targets.ratio or 0.0
    channels, costs = sweep.channels(state)
    needed = [0.0]
    if targets.macs is not None:
        needed.append(
            least_ratio(targets.macs, lambda r: costs.macs(first_roots(channels.free, r)), "macs", 256)
        )
    if targets.latency is not None:
        limit, clock = targets.latency, integer_milliseconds if targets.integer else milliseconds

        def left(ratio: float) -> float:
            return clock(sweep, cut_anywhere(state, channels, ratio, targets.round_to))

        needed.append(least_ratio(limit, left, "latency", PARTS))
    return max(needed)


def measured(sweep: Sweep, measure: Callable[[], float]) -> float:
    """What the clock says, once: a call that is resumed has it from the journal."""
    return float(sweep.journal(lambda: {"value": torch.tensor([measure()], dtype=torch.float64)})["value"])


def least_ratio(limit: float, left: Callable[[float], float], name: str, count: int) -> float:
    """The least ratio k / count at which no more than the limit is left, by bisection."""
    least = left((count - 1) / count)
    if least > limit:
        raise impossible(name, limit, least)
    return bisect_left(range(count - 1), True, key=lambda k: left(k / count) <= limit) / count


def cut_anywhere(state: SweepState, channels: Channels, ratio: float, round_to: int) -> nn.Module:
    """The network without so many channels, whichever: what a call takes does not depend on them."""
    decisions: list[Decision] = []
    for coupling in channels.free:
        dead = torch.zeros(coupling.channels, dtype=torch.bool)
        dead[: cut_evenly(coupling.channels, ratio, round_to)[0]] = True
        decisions.append(Decision(coupling, dead, dead))
    return apply_surgery(copy.deepcopy(state.work), channels.trace, surgery(decisions)).eval()


def milliseconds(sweep: Sweep, model: nn.Module) -> float:
    """Of one sample's call."""
    return measured(sweep, lambda: 1000 * median_latency(model, sweep.calibration.first(1), 11, 3))


def integer_milliseconds(sweep: Sweep, model: nn.Module) -> float:
    """Of one sample's call of the integer file."""
    few, one = sweep.few(), sweep.calibration.first(1)

    def timed() -> float:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            return export(model, one, path, integer=True, calibration=few).card["milliseconds"]

    return measured(sweep, timed)
