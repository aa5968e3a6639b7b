"""``shrink``: the same function from fewer channels, neurons, units and heads."""

import copy
import dataclasses
import functools
import logging
from collections.abc import Callable
from typing import Literal

from torch import nn
from torch.optim import Optimizer

from torchlift.channels.copies import sharing
from torchlift.channels.couplings import couplings
from torchlift.channels.cuts import carry, check_optimizer
from torchlift.channels.dead_channels import Decision, Proof
from torchlift.channels.equality import difference, same_function
from torchlift.channels.example_inputs import Example, Output, PinnedOutput, differ, few, other_shapes
from torchlift.channels.follow import traced
from torchlift.channels.follow.constants import FIXED
from torchlift.channels.layout import laid_out
from torchlift.channels.pretrained import rewrite_config
from torchlift.channels.surgery import FIXED_SIZE, Surgery, apply_surgery, runs, surgery

LOG = logging.getLogger(__name__)

CHANGES_OUTPUT = "cutting it would change the output: left as it is"


@dataclasses.dataclass(frozen=True)
class ShrinkRow:
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

    ``example``: an input tensor, a tuple of arguments or a dict of keyword arguments. What goes is proved to
    do nothing from the zeros of the weights, whatever the input; a model without zeros comes back as it is.
    What stays although it is zero is logged with the reason, and listed by :func:`shrinkable`. An
    ``optimizer`` of the model is pointed at the new parameters; its state keeps the rows that were kept.
    ``exact=False`` lets layer norms forget the features that went, which is faster and changes the output; by
    how much is logged. ``round_to``: widths stay multiples of it where they were.
    """
    small, rows = shrunk(model, example, optimizer, exact=exact, round_to=round_to)
    for row in rows:
        if row.zero > row.cut and row.why:
            LOG.warning("%s: %s", row.layer, row.why)
    return small


def shrunk(
    model: nn.Module,
    example: Example,
    optimizer: Optimizer | None = None,
    *,
    exact: bool = True,
    round_to: int = 1,
    output: Output | Literal["all"] = "all",
) -> tuple[nn.Module, list[ShrinkRow]]:
    """As :func:`shrink`, with a row for each group of channels; ``output`` as of :func:`prune`, or all."""
    check_optimizer(optimizer)
    small, done, rows, inputs = decided(model, example, exact=exact, round_to=round_to, output=output)
    small = copy.deepcopy(model) if small is None else small
    if optimizer is not None:
        carry(optimizer, model, small, done.cuts)
    if not done.cuts:
        return small, rows
    if not exact:
        pair = counting(sharing(model), output), counting(sharing(small), output)
        LOG.warning("inexact by request: outputs move by up to %.2g", difference(*pair, [inputs]))
    rewrite_config(small, inputs, None if output == "all" else output)
    return laid_out(small, inputs), rows


def shrinkable(model: nn.Module, example: Example, *, exact: bool = True) -> list[ShrinkRow]:
    """What :func:`shrink` cuts, group by group, and why it leaves the rest."""
    return decided(model, example, exact=exact)[2]


def decided(
    model: nn.Module,
    example: Example,
    *,
    exact: bool = True,
    round_to: int = 1,
    output: Output | Literal["all"] = "all",
) -> tuple[nn.Module | None, Surgery, list[ShrinkRow], Example]:
    """The model after the surgery (None where there is nothing to do), what was done, its rows, and the input
    that was followed.

    A cut rests on its proof. The numbers are compared afterwards, on the example and in other shapes that the
    model takes, because a model's own code may compute with sizes; what does not pass is left as it is.
    """
    trace, inputs = traced(model, example, output=output)
    twin = counting(sharing(model), output)
    shapes = functools.cache(lambda: list(other_shapes(twin, inputs)))
    fixed = bool((trace.readers.grade == FIXED).any())
    one_size = not (fixed and any(differ(few(inputs, 1), few(x, 1)) for x in shapes()))
    proof = Proof(model, trace, one_size=one_size, exact=exact)
    unproved = trace.unproved if exact else ""
    groups = [dataclasses.replace(c, blocked=c.blocked or unproved) for c in couplings(trace)]

    def attempt(done: Surgery) -> nn.Module | None:
        small = apply_surgery(model, trace, done, exact=exact)
        running = counting(sharing(small), output)
        if exact:
            return small if all(same_function(twin, running, x) for x in (inputs, *shapes())) else None
        return small if difference(twin, running, [inputs]) < float("inf") else None

    reasons: dict[int, str] = {}
    while True:
        blocked_groups = [
            dataclasses.replace(c, blocked=reasons.get(k, c.blocked)) for k, c in enumerate(groups)
        ]
        decisions = proof.decisions(blocked_groups, round_to)
        active = [k for k, decision in enumerate(decisions) if decision.cut]
        done = surgery([decisions[k] for k in active], proof)
        small = attempt(done) if active else None
        if small is not None or not active:
            return small, done, [row(decision) for decision in decisions], inputs

        def fine(some: list[int], decisions: list[Decision] = decisions) -> bool:
            return attempt(surgery([decisions[k] for k in some], proof)) is not None

        for k in culprits(active, fine):
            reasons[k] = CHANGES_OUTPUT if runs(model, trace, [groups[k]], inputs, output) else FIXED_SIZE


def counting(model: nn.Module, output: Output | Literal["all"]) -> nn.Module:
    """The model for evaluation, giving what counts of its output."""
    return (model if output == "all" else PinnedOutput(model, output)).eval()


def culprits(some: list[int], fine: Callable[[list[int]], bool]) -> list[int]:
    """Those that do not hold by themselves, by halving; all of them where each does."""
    if len(some) < 2:
        return some
    halves = some[: len(some) // 2], some[len(some) // 2 :]
    return [k for half in halves if not fine(half) for k in culprits(half, fine)] or some


def row(decision: Decision) -> ShrinkRow:
    """A decision as a line of the report."""
    coupling = decision.coupling
    return ShrinkRow(coupling.name, coupling.channels, int(decision.silent.sum()), decision.cut, decision.why)
