"""``prune``: channels chosen without training, by a criterion, and cut."""

import dataclasses
import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from torchlift.channels.copies import copied
from torchlift.channels.costs import costs_of
from torchlift.channels.couplings import TABLE, Coupling, couplings
from torchlift.channels.cuts import masked_copy
from torchlift.channels.dead_channels import Decision
from torchlift.channels.equality import agree
from torchlift.channels.example_inputs import Example, Output, PinnedOutput, batch_of, changed, noise
from torchlift.channels.follow import Trace, traced
from torchlift.channels.follow.movement import LOOKED_UP
from torchlift.channels.follow.trace import OUTPUT
from torchlift.channels.layout import faster, lay, timed
from torchlift.channels.pretrained import rewrite_config
from torchlift.channels.resizing import CONV, TRANSPOSED
from torchlift.channels.scores import Criterion, ModelLoss, PruningChoice, Scope, chosen_channels, scores_of
from torchlift.channels.shrink import shrunk
from torchlift.channels.surgery import apply_surgery, surgery, usable
from torchlift.core import matches, select
from torchlift.errors import TorchliftError
from torchlift.targets import Target, solve_for_target

LOG = logging.getLogger(__name__)

MULTIPLES = (1, 8, 16)
ROUNDS = 7
INHERENT = (OUTPUT, LOOKED_UP, TABLE)
"""Reasons that say what a model is for, not what we cannot do."""


def prune_channels(
    model: nn.Module,
    example: Example,
    ratio: float | Mapping[str, float] | None = None,
    *,
    criterion: Criterion = "magnitude",
    scope: Scope = "local",
    loss: ModelLoss | None = None,
    skip: str | None = None,
    round_to: int | Literal["auto"] = "auto",
    exact: bool = True,
    parameters: float | None = None,
    macs: float | None = None,
    output: Output = None,
) -> nn.Module:
    """A smaller copy of the model: the channels, units and heads worth least are cut, without training.

    ``ratio``: the part of each group of coupled channels that goes (½), or ``{glob of layers: ratio}``.
    ``criterion``: "magnitude", "taylor" (with ``loss``, a function of the model), "norm" (the scale of the
    batch norm behind a layer; magnitude where there is none) or "random". ``scope="global"``: groups compete,
    by scores relative to their own mean. ``parameters`` or ``macs`` (of one sample) in place of a ratio: the
    ratio that gives so many, as near as whole channels allow. What is cut computes what the model with these
    channels set to zero computes; ``exact`` as of :func:`shrink`. ``round_to``: widths are
    multiples of it; "auto": of 1, 8 or 16, whatever runs fastest on the example. ``output``: the key or
    index of what counts of the output, or several; of a dictionary with logits, states inside the model
    (hidden states, attentions, embeddings) do not, and may become narrower.
    """
    if sum(goal is not None for goal in (ratio, parameters, macs)) > 1:
        raise TorchliftError("prune goes by one of ratio, parameters= and macs=; got several.")
    ratio = 0.5 if ratio is None else ratio
    multiple = 1 if round_to == "auto" else round_to
    choice = PruningChoice(
        ratio=ratio, criterion=criterion, scope=scope, loss=loss, skip=skip, round_to=multiple
    )
    trace, inputs = traced_groups(model, example, output, ratio)
    for glob in [*(ratio if isinstance(ratio, Mapping) else ()), *([skip] if skip else ())]:
        select([name for name, _ in model.named_modules() if name], glob, "prune")
    every = [c for c in couplings(trace) if c.channels > 1]
    free: list[Coupling] = []
    gone: list[Tensor] = []
    for candidates in (every, None):  # most models support all cuts: where one does not, it is looked for
        candidates = usable(model, trace, inputs, output) if candidates is None else candidates
        free = [c for c in candidates if not c.blocked and not left_out(c, choice)]
        if round_to == "auto" and parameters is None and macs is None:
            choice = widths(model, trace, free, choice, example, exact=exact)
        gone = channels_to_cut(model, trace, free, choice, parameters, macs)
        small = apply_surgery(model, trace, surgery(decisions(free, gone)), exact=exact)
        if exact and verified_cut(small, masked_copy(model, free, gone, trace.scaled).eval(), inputs, output):
            say_what_stays(candidates)
            rewrite_config(small, example, output)
            return small
    zeroed = masked_copy(model, free, gone, trace.scaled)  # constants to fold, or a cut that is not possible
    return shrunk(zeroed, example, exact=exact, output=output)[0]


def traced_groups(
    model: nn.Module, example: Example, output: Output, ratio: float | Mapping[str, float]
) -> tuple[Trace, Example]:
    """The model's trace; convolutions in groups lose whole groups or as many channels of each, whichever
    leaves fewer parameters."""
    convolutions = [m for m in model.modules() if isinstance(m, (*CONV, *TRANSPOSED))]
    grouped = any(m.groups > 1 and m.weight.shape[1] > 1 for m in convolutions)
    traces = [
        traced(model, example, values=False, output=output, equal_groups=equal)
        for equal in ((True, False) if grouped else (False,))
    ]

    def left(trace: Trace) -> float:
        free = [c for c in couplings(trace) if c.channels > 1 and not c.blocked]
        gone = chosen_channels(
            free, scores_of(model, free, PruningChoice(ratio=ratio)), PruningChoice(ratio=ratio)
        )
        roots = [torch.zeros(0, dtype=torch.int64), *(c.roots[g] for c, g in zip(free, gone, strict=True))]
        return costs_of(model, trace).parameters(torch.cat(roots))

    return traces[0] if len(traces) == 1 else min(traces, key=lambda pair: left(pair[0]))


def decisions(free: list[Coupling], gone: list[Tensor]) -> list[Decision]:
    """What becomes of couplings that lose channels."""
    return [Decision(c, dead, dead) for c, dead in zip(free, gone, strict=True) if bool(dead.any())]


def say_what_stays(every: list[Coupling]) -> None:
    """One line for each reason why channels stay, but for those that no tool could cut."""
    layers: dict[str, list[str]] = {}
    for coupling in every:
        if coupling.blocked and coupling.blocked not in INHERENT:
            layers.setdefault(coupling.blocked, []).append(coupling.name)
    for reason, names in layers.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        LOG.warning("%s%s stay: %s", ", ".join(names[:3]), more, reason)


def widths(
    model: nn.Module,
    trace: Trace,
    free: list[Coupling],
    choice: PruningChoice,
    example: Example,
    *,
    exact: bool,
) -> PruningChoice:
    """The choice with the multiple of widths at which the cut model runs fastest on the example.

    Vector units like multiples of 8 or 16; a multiple is taken where it saves 3 % or more. Models are timed
    in turns, the least time of each counts, and the table is logged.
    """
    scores = scores_of(model, free, choice)
    options: dict[tuple[int, ...], tuple[PruningChoice, nn.Module]] = {}
    for multiple in MULTIPLES:
        rounded = dataclasses.replace(choice, round_to=multiple, gently=multiple > 1)
        gone = chosen_channels(free, scores, rounded)
        counts = tuple(int(dead.sum()) for dead in gone)
        if counts not in options:
            small = apply_surgery(model, trace, surgery(decisions(free, gone)), exact=exact).eval()
            options[counts] = rounded, small
    if len(options) == 1:
        return next(iter(options.values()))[0]
    times = dict.fromkeys(options, float("inf"))
    for _ in range(ROUNDS):
        for counts, (_, small) in options.items():
            try:
                times[counts] = min(times[counts], timed(small, example)[0])
            except Exception:  # a cut that the model's own code does not take: found out later
                return choice
    first = next(iter(options))
    best = min(options, key=lambda counts: times[counts] * (1.0 if counts == first else 1.03))
    for counts, (option, _) in options.items():
        taken = " (taken)" if counts == best else ""
        LOG.info("round_to=%d: %.2f of the time%s", option.round_to, times[counts] / times[first], taken)
    return options[best][0]


def verified_cut(small: nn.Module, reference: nn.Module, example: Example, output: Output) -> bool:
    """Whether a cut model does what the reference (spent) does; if so, it is laid out to be fast."""
    trial, reference = (PinnedOutput(model, output).eval() for model in (copied(small), reference))
    for inputs in (changed(example, batch_of(1)), example):
        noisy = changed(inputs, noise(10.0))
        order, seen = faster(trial, noisy)
        if seen:
            lay(small, order)
            return agree(reference, trial, example, (noisy, seen))
    return False


def channels_to_cut(
    model: nn.Module,
    trace: Trace,
    free: list[Coupling],
    choice: PruningChoice,
    parameters: float | None,
    macs: float | None,
) -> list[Tensor]:
    """The channels that go: by the ratio, or by what is to be left."""
    scores = scores_of(model, free, choice)
    if parameters is None and macs is None:
        return chosen_channels(free, scores, choice)
    costs = costs_of(model, trace)

    def left(gone: list[Tensor]) -> float:
        roots = torch.cat([c.roots[g] for c, g in zip(free, gone, strict=True)])
        return costs.parameters(roots) if parameters is not None else costs.macs(roots)

    target = Target.one_of(parameters=parameters, macs=macs)
    assert target is not None, "one of the two is given"
    return aimed(free, scores, choice, left, target)


def left_out(coupling: Coupling, choice: PruningChoice) -> bool:
    """Whether a coupling is to be left alone."""
    return bool(choice.skip) and any(matches(m.name, str(choice.skip)) for m in coupling.of("writes"))


def aimed(
    free: list[Coupling],
    scores: list[Tensor],
    choice: PruningChoice,
    left: Callable[[list[Tensor]], float],
    target: Target,
) -> list[Tensor]:
    """The channels whose removal meets the target: by the ratio, then one by one."""

    def at(ratio: float) -> list[Tensor]:
        return chosen_channels(free, scores, dataclasses.replace(choice, ratio=ratio))

    most = 0.999999
    target.check(left(at(most)), left(at(0.0)), "these cuts")
    bracket = solve_for_target(lambda ratio: left(at(ratio)), target.value, 0.0, most, steps=60)
    few = at(bracket.low)
    steps = between(few, at(bracket.high), scores, choice.round_to)

    def after(count: int) -> list[Tensor]:
        gone = [dead.clone() for dead in few]
        for _, number, channels in steps[:count]:
            gone[number][channels] = True
        return gone

    count = solve_for_target(
        lambda count: left(after(round(count))),
        target.value,
        0.0,
        len(steps),
        steps=2 * len(steps).bit_length() + 2,
    ).at
    best = after(round(count))
    if target.missed_by(left(best)):
        warnings.warn(
            f"the target is {target}; the nearest that whole channels allow is {left(best):g}.", stacklevel=4
        )
    return best


def between(
    few: list[Tensor], many: list[Tensor], scores: list[Tensor], together: int
) -> list[tuple[float, int, Tensor]]:
    """From few cuts to many, step by step: (worth beside its coupling's mean, coupling, channels)."""
    steps: list[tuple[float, int, Tensor]] = []
    for number, (some, more, score) in enumerate(zip(few, many, scores, strict=True)):
        fresh = (more & ~some).nonzero().flatten()
        relative = score / score.mean().clamp(min=1e-300)
        for channels in fresh[relative[fresh].argsort()].split(max(together, 1)) if len(fresh) else ():
            steps.append((float(relative[channels].mean()), number, channels))
    return sorted(steps, key=lambda step: step[0])
