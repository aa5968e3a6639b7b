"""``prune``: channels chosen without training, by a criterion, and cut."""

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from torchlift.core import matches
from torchlift.deploy.costs import Costs, costs_of
from torchlift.deploy.couplings import Coupling
from torchlift.deploy.dead import Verdict, surgery
from torchlift.deploy.feasible import usable
from torchlift.deploy.masking import masked
from torchlift.deploy.operating import operate
from torchlift.deploy.probing import Example
from torchlift.deploy.sameness import same
from torchlift.deploy.scoring import Choice, Criterion, Loss, Scope, chosen, scores_of
from torchlift.deploy.shrinking import laid_out, shrink
from torchlift.deploy.tracking import Probe, traced
from torchlift.errors import TorchliftError


def prune(
    model: nn.Module,
    example: Example,
    ratio: float | Mapping[str, float] = 0.5,
    *,
    criterion: Criterion = "magnitude",
    scope: Scope = "local",
    loss: Loss | None = None,
    skip: str | None = None,
    round_to: int = 1,
    exact: bool = True,
    parameters: float | None = None,
    macs: float | None = None,
) -> nn.Module:
    """A smaller copy of the model: the channels, units and heads worth least are cut, without training.

    ``ratio``: the part of each group of coupled channels that goes, or ``{glob of layers: ratio}``.
    ``criterion``: "magnitude", "taylor" (with ``loss``, a function of the model), "norm" (the scale of the
    batch norm behind a layer; magnitude where there is none) or "random". ``scope="global"``: groups compete,
    by scores relative to their own mean. ``parameters`` or ``macs`` (of one sample) in place of a ratio: the
    ratio that gives so many, as near as whole channels allow. What is cut computes what the model with these
    channels set to zero computes; ``exact`` and ``round_to`` as of :func:`shrink`.
    """
    choice = Choice(ratio=ratio, criterion=criterion, scope=scope, loss=loss, skip=skip, round_to=round_to)
    probe = Probe.of(model, example)
    found = traced(model, example, probe, brief=True)
    free = [c for c in usable(model, found, example) if not c.blocked and not left_out(c, choice)]
    scores = scores_of(model, free, choice)
    if parameters is not None or macs is not None:
        costs = costs_of(model, found)
        gone = aimed(free, scores, choice, costs, parameters, macs)
    else:
        gone = chosen(free, scores, choice)
    closed = masked(model, free, gone)
    verdicts = [Verdict(c, dead, dead) for c, dead in zip(free, gone, strict=True) if bool(dead.any())]
    small = operate(closed, found, surgery(closed, found, verdicts, folding=False), exact=exact)
    if exact and same(closed, small, probe.examples):
        return laid_out(small, probe.examples)
    return shrink(closed, example, exact=exact)  # constants to fold, or a cut that is refused with its reason


def left_out(coupling: Coupling, choice: Choice) -> bool:
    """Whether a coupling is to be left alone."""
    return bool(choice.skip) and any(matches(m.name, str(choice.skip)) for m in coupling.of("writes"))


def aimed(
    free: list[Coupling],
    scores: list[Tensor],
    choice: Choice,
    costs: Costs,
    parameters: float | None,
    macs: float | None,
) -> list[Tensor]:
    """The channels whose removal leaves what was asked for, by bisection on the ratio."""
    name, asked = ("parameters", parameters) if parameters is not None else ("macs", macs)
    assert asked is not None

    def left(ratio: float) -> tuple[float, list[Tensor]]:
        gone = chosen(free, scores, dataclasses.replace(choice, ratio=ratio))
        roots = torch.cat([c.roots[g] for c, g in zip(free, gone, strict=True)])
        return (costs.parameters(roots) if name == "parameters" else costs.macs(roots)), gone

    low, high = 0.0, 0.999999
    least, most = left(high)[0], left(low)[0]
    if not least <= asked <= most:
        raise TorchliftError(f"{name}={asked:g} is out of reach: cuts can leave {least:.0f} to {most:.0f}.")
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if left(middle)[0] > asked else (low, middle)
    return min((left(r) for r in (low, high)), key=lambda pair: abs(pair[0] - asked))[1]
