"""``shrink``: the same function from fewer channels, neurons and heads."""

import copy
import dataclasses
import logging

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchlift.deploy.couplings import Coupling, couplings
from torchlift.deploy.cuts import carry, cut
from torchlift.deploy.dead import Surgery, Verdict, judge, surgery
from torchlift.deploy.heads import attention_heads, recount
from torchlift.deploy.layout import lay_channels_last
from torchlift.deploy.probing import Example, call, changed, inputs_of, outputs, tensors, variations
from torchlift.errors import TorchliftError

log = logging.getLogger(__name__)

TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True)
class Row:
    """What became of one group of coupled channels."""

    layer: str
    channels: int
    zero: int
    cut: int
    why: str


def shrink(model: nn.Module, example: Example, optimizer: Optimizer | None = None) -> nn.Module:
    """A copy of the model without the channels, neurons and heads that do nothing; same outputs to 1e-6.

    ``example``: an input tensor, a tuple of arguments or a dict of keyword arguments. A cut is exact or not
    made: what stays although it is zero is logged with the reason, and listed by :func:`shrinkable`. An
    ``optimizer`` of the model is pointed at the new parameters; its state keeps the rows that were kept.
    """
    small = model
    for _ in range(100):  # a cut can make the layer before it useless: repeat until nothing moves
        try:
            done, rows = once(small, example)
        except UntraceableError as error:
            return in_parts(small, example, optimizer, str(error))
        if done is None:
            break
        after = operate(small, done)
        if optimizer is not None:
            carry(optimizer, small, after, done.cuts)
        small = after
    else:
        raise AssertionError("a model cannot shrink a hundred times")
    for row in rows:
        if row.zero > row.cut and row.why:
            log.warning("%s: %s", row.layer, row.why)
    if small is model:
        return copy.deepcopy(model)
    quick = lay_channels_last(copy.deepcopy(small))  # a model that calls view() may not bear it
    return lay_channels_last(small) if same(small, quick, variations(example)) else small


def shrinkable(model: nn.Module, example: Example) -> list[Row]:
    """What :func:`shrink` would cut in its first pass, group by group, and why it leaves the rest."""
    _, rows = once(model, example)
    return rows


class UntraceableError(TorchliftError):
    """A model whose graph cannot be followed."""


def once(model: nn.Module, example: Example) -> tuple[Surgery | None, list[Row]]:
    """One pass: the surgery that is exact (None where there is nothing to do), and the rows of the report."""
    try:
        found = whole(model, example)
    except TorchliftError:
        raise
    except Exception as error:  # following a user's graph may raise anything; the caller decides
        raise UntraceableError(f"{type(error).__name__}: {error}") from error
    found = [untied(model, coupling) for coupling in found]
    twin = copy.deepcopy(model).eval()
    examples = variations(example)
    seen = inputs_of(twin, {m.layer for c in found for m in c.of("reads")}, examples)
    pairs = [(coupling, judge(twin, coupling, seen)) for coupling in found]
    active = [(coupling, verdict) for coupling, verdict in pairs if verdict.cut]
    refused: set[str] = set()
    done = surgery(model, active, seen)
    if active and not same(model, operate(model, done), examples):
        alone = [
            (pair, same(model, operate(model, surgery(model, [pair], seen)), examples)) for pair in active
        ]
        refused = {pair[1].name for pair, fine in alone if not fine}
        active = [pair for pair, fine in alone if fine]
        done = surgery(model, active, seen)
        if active and not same(model, operate(model, done), examples):
            refused, active = {verdict.name for _, verdict in pairs}, []
    return (done if active else None), [row(verdict, verdict.name in refused) for _, verdict in pairs]


def whole(model: nn.Module, example: Example) -> list[Coupling]:
    """Channels and heads; the features inside a head are not cut one by one."""
    heads = attention_heads(model)
    inside = {member.layer for coupling in heads for member in coupling.members if member.role != "reads"}
    layers = [c for c in couplings(model, example) if not any(m.layer in inside for m in c.of("writes"))]
    return layers + heads


def row(verdict: Verdict, refused: bool) -> Row:
    """A verdict as a line of the report."""
    cut_, why = (
        (0, "cutting it would change the output: left as it is") if refused else (verdict.cut, verdict.why)
    )
    return Row(verdict.name, verdict.channels, verdict.silent, cut_, why)


def untied(model: nn.Module, coupling: Coupling) -> Coupling:
    """The coupling, blocked where one of its weights is used under two names."""
    names: dict[int, int] = {}
    for _, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)] = names.get(id(parameter), 0) + 1
    layers = (model.get_submodule(member.layer) for member in coupling.members)
    tied = any(names[id(p)] > 1 for layer in layers for p in layer.parameters(recurse=False))
    return dataclasses.replace(coupling, blocked="a weight is tied to another layer's") if tied else coupling


def operate(model: nn.Module, done: Surgery) -> nn.Module:
    """The model after the surgery."""
    folded = copy.deepcopy(model)
    for name, extra in done.folds.items():
        layer = folded.get_submodule(name)
        weight = layer.get_parameter("weight")
        bias = layer.get_parameter("bias").detach().double() if isinstance(layer.bias, Tensor) else 0.0
        layer.register_parameter("bias", nn.Parameter((bias + extra).to(weight), weight.requires_grad))
    small = cut(folded, done.cuts)
    recount(small)
    return small


def same(model: nn.Module, other: nn.Module, examples: list[Example]) -> bool:
    """Whether two models agree on the examples, computed in double precision."""
    try:
        ours, theirs = (outputs(copy.deepcopy(m).double().eval(), doubled(examples)) for m in (model, other))
    except (RuntimeError, ValueError, IndexError, TypeError):
        return False
    return len(ours) == len(theirs) and all(
        a.shape == b.shape and bool((a - b).abs().max() <= TOLERANCE * a.abs().max().clamp(min=1.0))
        for a, b in zip(ours, theirs, strict=True)
    )


def doubled(examples: list[Example]) -> list[Example]:
    """The examples in double precision."""
    return [changed(e, lambda x: x.double() if x.is_floating_point() else x) for e in examples]


def in_parts(model: nn.Module, example: Example, optimizer: Optimizer | None, why: str) -> nn.Module:
    """Shrink each part alone where the whole cannot be followed; what connects the parts keeps its width."""
    log.warning(
        "the graph of %s cannot be followed (%s): its parts are shrunk one by one.", type(model).__name__, why
    )
    small = copy.deepcopy(model)
    twin = copy.deepcopy(model).eval()
    for name, child in model.named_children():
        if any(True for _ in child.children()):
            given = seen_by(twin, name, example)
            if given is not None:
                setattr(small, name, shrink(child, given, optimizer))
    return small


def seen_by(model: nn.Module, name: str, example: Example) -> tuple[object, ...] | None:
    """The positional arguments of a part, or None where it is not called with tensors alone."""
    caught: list[tuple[object, ...]] = []
    hook = model.get_submodule(name).register_forward_pre_hook(lambda _m, given: caught.append(given))
    try:
        with torch.no_grad():
            call(model, example)
    finally:
        hook.remove()
    fine = len(caught) == 1 and caught[0] and len(list(tensors(caught[0]))) == len(caught[0])
    return caught[0] if fine else None
