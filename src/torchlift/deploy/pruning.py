"""``prune``: channels chosen without training, by a criterion, and cut."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from torchlift.core import TorchliftError, matches
from torchlift.deploy import criteria
from torchlift.deploy.costs import Costs, costs_of
from torchlift.deploy.couplings import Coupling
from torchlift.deploy.dead import Verdict, surgery
from torchlift.deploy.feasible import usable
from torchlift.deploy.masking import masked
from torchlift.deploy.operating import operate
from torchlift.deploy.probing import Example
from torchlift.deploy.sameness import same
from torchlift.deploy.shrinking import laid_out, shrink
from torchlift.deploy.tracking import Probe, traced

Criterion = Literal["magnitude", "taylor", "norm", "random"]
Scope = Literal["local", "global"]
Loss = Callable[[nn.Module], Tensor]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """How channels are chosen: see :func:`prune`."""

    ratio: float | Mapping[str, float] = 0.5
    criterion: Criterion = "magnitude"
    scope: Scope = "local"
    loss: Loss | None = None
    skip: str | None = None
    round_to: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.criterion not in ("magnitude", "taylor", "norm", "random"):
            raise TorchliftError(
                f"criterion {self.criterion!r} is not known: magnitude, taylor, norm or random."
            )
        if self.scope not in ("local", "global"):
            raise TorchliftError(f"scope is 'local' or 'global', got {self.scope!r}.")
        if self.criterion == "taylor" and self.loss is None:
            raise TorchliftError(
                "criterion='taylor' needs loss=, a function of the model that gives a number."
            )
        for ratio in self.ratio.values() if isinstance(self.ratio, Mapping) else [self.ratio]:
            if not 0 <= ratio < 1:
                raise TorchliftError(f"a ratio lies in [0, 1), got {ratio}: 0.5 cuts half of the channels.")

    def of(self, name: str) -> float:
        """The ratio of a coupling: that of the first glob its layer fits, else 0."""
        if not isinstance(self.ratio, Mapping):
            return self.ratio
        return next((ratio for glob, ratio in self.ratio.items() if matches(name, glob)), 0.0)


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
    scores = [score(model, c, choice) for c in free]
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


def chosen(free: list[Coupling], scores: list[Tensor], choice: Choice) -> list[Tensor]:
    """Boolean, for each coupling: the channels that go."""
    if choice.scope == "global":
        ratio = choice.of("*")
        relative = torch.cat([s / s.mean().clamp(min=1e-300) for s in scores]) if scores else torch.zeros(0)
        (gone,) = criteria.lowest([relative], [round(ratio * len(relative))])
        parts = list(gone.split([len(s) for s in scores]))
        counts = [min(int(p.sum()), len(p) - 1) for p in parts]
    else:
        counts = [min(round(choice.of(c.name) * c.channels), c.channels - 1) for c in free]
    counts = [rounded_count(c.channels, n, choice.round_to) for c, n in zip(free, counts, strict=True)]
    return criteria.lowest(scores, counts)


def rounded_count(channels: int, gone: int, round_to: int) -> int:
    """How many go so that a multiple of ``round_to`` is left; none where there is no such number."""
    if round_to < 2 or gone == 0:
        return gone
    left = max(round_to, round((channels - gone) / round_to) * round_to)
    return max(0, channels - left)


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


def score(model: nn.Module, coupling: Coupling, choice: Choice) -> Tensor:
    """What each channel of a coupling is worth."""
    if choice.criterion == "random":
        generator = torch.Generator().manual_seed(choice.seed + int(coupling.roots[0]))
        return torch.rand(coupling.channels, generator=generator, dtype=torch.float64)
    known = dict(model.named_parameters())
    grads = gradients(model, choice.loss) if choice.criterion == "taylor" and choice.loss else {}
    members = [m for m in coupling.of("writes") if m.name in known]
    if choice.criterion == "norm":
        owners = {n: type(p).__name__ for n, p in model.named_modules()}
        norms = [m for m in members if "BatchNorm" in owners[m.name.rpartition(".")[0]]]
        members = [m for m in norms if m.name.endswith("weight")] or members
    total = torch.zeros(coupling.channels, dtype=torch.float64)
    for member in members:
        weight = known[member.name].detach()
        if choice.criterion == "taylor":
            worth = criteria.taylor(weight, grads[member.name], member.dim)
        else:
            worth = criteria.magnitude(weight, member.dim)
        total.index_add_(0, member.channel, worth.cpu()[member.index])
    return total.sqrt()


def gradients(model: nn.Module, loss: Loss) -> dict[str, Tensor]:
    """∂f/∂w of every parameter."""
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(loss(model), list(named.values()), allow_unused=True, materialize_grads=True)
    every = {n: torch.zeros_like(p) for n, p in model.named_parameters()}
    return every | dict(zip(named, found, strict=True))
