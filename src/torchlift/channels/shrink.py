"""``shrink``: the same function from fewer channels, neurons, units and heads."""

import copy
import dataclasses
import logging

from torch import nn
from torch.optim import Optimizer

from torchlift.channels.couplings import couplings
from torchlift.channels.cuts import carry, check_optimizer
from torchlift.channels.dead_channels import Surgery, Verdict, judge, surgery
from torchlift.channels.decisions import rounded, sound, spared
from torchlift.channels.equality import difference, same
from torchlift.channels.example_inputs import Example
from torchlift.channels.feasible import FIXED, runs
from torchlift.channels.follow import Trace
from torchlift.channels.layout import laid_out
from torchlift.channels.model_trace import Probe, traced
from torchlift.channels.surgery import operate

log = logging.getLogger(__name__)

REFUSED = "cutting it would change the output: left as it is"


@dataclasses.dataclass(frozen=True)
class Row:
    """What became of one group of coupled channels."""

    layer: str
    channels: int
    zero: int
    cut: int
    why: str


def shrink(
    model: nn.Module,
    example: Example,
    optimizer: Optimizer | None = None,
    *,
    exact: bool = True,
    round_to: int = 1,
) -> nn.Module:
    """A copy of the model without the channels, units and heads that do nothing; same outputs to 1e-6.

    ``example``: an input tensor, a tuple of arguments or a dict of keyword arguments. A cut is exact or not
    made: what stays although it is zero is logged with the reason, and listed by :func:`shrinkable`. An
    ``optimizer`` of the model is pointed at the new parameters; its state keeps the rows that were kept.
    ``exact=False`` lets layer norms forget the features that went, which is faster and changes the output; by
    how much is logged. ``round_to``: widths stay multiples of it where they were.
    """
    small, rows = shrunk(model, example, optimizer, exact=exact, round_to=round_to)
    for row in rows:
        if row.zero > row.cut and row.why:
            log.warning("%s: %s", row.layer, row.why)
    return small


def shrunk(
    model: nn.Module,
    example: Example,
    optimizer: Optimizer | None = None,
    *,
    exact: bool = True,
    round_to: int = 1,
) -> tuple[nn.Module, list[Row]]:
    """As :func:`shrink`, with the rows of what is left."""
    check_optimizer(optimizer)
    probe = Probe.of(model, example)
    small = model
    rows: list[Row] = []
    for _ in range(100):  # a cut can make the layer before it useless: repeat until nothing moves
        found, done, rows = once(small, example, probe, exact=exact, round_to=round_to)
        if done is None:
            break
        after = operate(small, found, done, exact=exact)
        if optimizer is not None:
            carry(optimizer, small, after, done.cuts)
        small = after
    if not exact:
        moved = difference(model, small, probe.examples)
        log.warning("inexact by request: outputs move by up to %.2g", moved)
    if small is model:
        small = copy.deepcopy(model)
        if optimizer is not None:
            carry(optimizer, model, small, {})
        return small, rows
    return laid_out(small, probe.examples[0]), rows


def shrinkable(model: nn.Module, example: Example, *, exact: bool = True) -> list[Row]:
    """What :func:`shrink` would cut in its first pass, group by group, and why it leaves the rest."""
    return once(model, example, Probe.of(model, example), exact=exact)[2]


def once(
    model: nn.Module, example: Example, probe: Probe, *, exact: bool = True, round_to: int = 1
) -> tuple[Trace, Surgery | None, list[Row]]:
    """One pass: the surgery that is exact (None where there is nothing to do), and the rows of the report."""
    found = traced(model, example, probe)
    verdicts = [judge(model, found, coupling, exact=exact) for coupling in couplings(found)]
    verdicts = [rounded(verdict, round_to) for verdict in spared(verdicts)]

    def fine(some: list[Verdict]) -> bool:
        done = surgery(model, found, some)
        after = operate(model, found, done, exact=exact)
        agree = same(model, after, probe.examples)
        return agree or (not exact and difference(model, after, probe.examples) < float("inf"))

    active = [verdict for verdict in verdicts if verdict.cut]
    refused: list[Verdict] = []
    if active and not fine(active):
        good = sound(active, fine)
        refused, active = [v for v in active if v not in good], good
    reasons = {
        id(v): REFUSED if runs(model, found, v.coupling, probe.examples[0]) else FIXED for v in refused
    }
    rows = [row(verdict, reasons.get(id(verdict), "")) for verdict in verdicts]
    return found, (surgery(model, found, active) if active else None), rows


def row(verdict: Verdict, refused: str) -> Row:
    """A verdict as a line of the report."""
    coupling = verdict.coupling
    cut, why = (0, refused) if refused else (verdict.cut, verdict.why)
    return Row(coupling.name, coupling.channels, int(verdict.silent.sum()), cut, why)
