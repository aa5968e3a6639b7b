"""Continuous sparsification: weights behind soft gates that become 0 or 1."""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor

from torchlift.core import Dial, Fit, Node, Problem, Reparametrized, WeightLift, liftable, matches, refer
from torchlift.errors import TorchliftError
from torchlift.methods.sparsity import gates
from torchlift.methods.sparsity.switches import (
    Gate,
    Ranked,
    Stairs,
    Switches,
    with_one_open,
    with_round_widths,
    with_target_sparsity,
)

MaskGroups = Mapping[str, Mapping[str, int | tuple[int, tuple[int, ...]]]]

MaskGranularity = Literal["weight", "channel", "head", "block"] | MaskGroups

Variant = Literal["thesis", "published"]


@dataclasses.dataclass(frozen=True)
class SoftMask(WeightLift):
    """min over v, s of f(v ⊙ b(β, s)) + λ ‖b(β, s)‖₁ with β: 1 → β_final; then w = v ⊙ 1{s ≥ 0}.

    Continuous sparsification (Savarese, Silva, Maire 2020; thesis Algorithm 1). ``strength`` is λ.

    variant ``"thesis"`` (default): gate b(β, s), so training starts at w·b(1, s_init); keeps s ≥ 0; β grows
    every step. ``"published"``: gate b(β, s) / b(1, s_init) everywhere (hard mask and penalty too), so
    training starts at w; keeps s > 0. ``levels=E`` lets β grow by epoch, as the published code does.
    ``rescale`` sets the factor 1 / b(1, s_init) by hand, whatever the variant: short runs want it.

    granularity: ``"weight"``; ``"channel"`` (rows: output channels, neurons); ``"head"`` (``size`` rows);
    ``"block"`` (``size`` × ``size`` of the first two dimensions); or groups of your own that open and close
    together, ``{group: {glob of parameters: dimension}}``, with ``size`` entries of the dimension per gate;
    or ``(dimension, gate of each slice)`` in place of the dimension.
    ``frozen=True`` learns the mask alone (a supermask). ``skip`` is a glob of weights to leave unmasked.

    ``sparsity`` asks for a fraction of zeros: gates then count from a threshold τ that rises until the lowest
    logits, over all layers, are worth that fraction, and projection closes exactly so many. The source has no
    such control; ``ramp`` is the part of the fit until it is there. ``costs`` (by glob; 1 otherwise) say what
    a weight of a layer is worth, such as its MACs.

    ``eps``: that of Adam for the logits, in place of its own. Adam divides a logit's tiny gradient by its own
    size, so that all logits move alike and none stands out; a large one leaves small gradients small. None
    leaves it alone, as in the source; optimizers without eps ignore it.

    ``round_to``: of each layer or group a number of channels that is a multiple of it stays, where its width
    was one; for channels, heads and groups.

    More than eight fields: those of the source, of its published code, and of the target that neither has.
    """

    where: str = "*weight"
    granularity: MaskGranularity = "weight"
    s_init: float = 0.0
    beta_final: float = 200.0
    strength: float = 1e-8
    gate: gates.GateShape = "sigmoid"
    variant: Variant = "thesis"
    size: int = 1
    levels: int | None = None
    frozen: bool = False
    skip: str | None = None
    sparsity: float | None = None
    costs: Mapping[str, float] | None = None
    rescale: bool | None = None
    round_to: int = 1
    ramp: float = 0.75
    eps: float | None = 1e-3
    prunes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        gates.check_gate(self.gate)
        if self.variant not in ("thesis", "published"):
            raise TorchliftError(f"variant {self.variant!r} is not known: 'thesis' or 'published'.")
        if isinstance(self.granularity, str):
            if self.granularity not in ("weight", "channel", "head", "block"):
                raise TorchliftError(
                    f"granularity {self.granularity!r} is not known: weight, channel, head, block or groups."
                )
            if self.granularity in ("head", "block") and self.size < 2:
                raise TorchliftError(
                    f"granularity {self.granularity!r} needs size=, the rows of one of them."
                )
        if self.sparsity is not None and not 0 <= self.sparsity < 1:
            raise TorchliftError(
                f"sparsity must lie in [0, 1), got {self.sparsity}: 0.95 leaves 5 % of the weights."
            )
        if not 0 < self.ramp <= 1:
            raise TorchliftError(f"ramp is a fraction of the fit in (0, 1], got {self.ramp}.")
        if self.round_to < 1 or (self.round_to > 1 and self.granularity in ("weight", "block")):
            raise TorchliftError(
                f"round_to={self.round_to} rounds numbers of channels: a whole number ≥ 1, with "
                'granularity="channel", "head" or groups.'
            )
        if self.beta_final < 1:
            raise TorchliftError(f"beta_final must be at least 1 (β starts at 1), got {self.beta_final}.")

    @property
    def preserving(self) -> bool:
        """Only with the factor of the published variant: the thesis starts at w·b(1, s_init)."""
        return self.variant == "published" if self.rescale is None else self.rescale

    @property
    def reversible(self) -> bool:
        """Not with a target or a factor, nor where gates start closed."""
        return self.sparsity is None and not self.preserving and self.s_init >= 0

    def eligible(self, problem: Problem) -> dict[str, Tensor]:
        """As for all weights, less those to skip; with groups of one's own, vectors (biases, norms) too."""
        if isinstance(self.granularity, str):
            candidates = super().eligible(problem)
        else:
            candidates = {n: p.detach() for n, p in liftable(problem).items() if p.ndim}
            candidates = {n: w for n, w in candidates.items() if group_of(self.granularity, n)}
        return {n: w for n, w in candidates.items() if not (self.skip and matches(n, self.skip))}

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """A gate for each weight; weights of one group share their switches."""
        switches: dict[str, Switches] = {}
        nodes: dict[str, Node] = {}
        for name, weight in weights.items():
            group, grain = self.group_and_grain(name, weight)
            fresh = group not in switches
            if fresh:
                switches[group] = self.switches(
                    weight.new_full(gates.tiles(weight.shape, grain), self.s_init)
                )
            switch = switches[group]
            if math.prod(gates.tiles(weight.shape, grain)) != switch.logit.numel():
                raise TorchliftError(
                    f"{name} has {math.prod(gates.tiles(weight.shape, grain))} gates, "
                    f"but its group {group!r} has {switch.logit.numel()}: check the dimension given."
                )
            gate = nodes[name] = Gate(weight, switch, grain, self.strength if fresh else 0.0, self.eps)
            gate.weight.requires_grad_(not self.frozen)
        if self.sparsity is not None:
            self.rank(nodes)
        return nodes

    def rank(self, nodes: Mapping[str, Node]) -> None:
        """Let all gates count from one threshold."""
        assert self.sparsity is not None
        sizes: dict[Switches, Tensor] = {}
        for name, gate in nodes.items():
            assert isinstance(gate, Gate)
            cost = next((c for where, c in (self.costs or {}).items() if matches(name, where)), 1.0)
            worth = gates.tile_sums(torch.full_like(gate.weight.detach(), cost), gate.grain).flatten()
            sizes[gate.switches] = sizes[gate.switches] + worth if gate.switches in sizes else worth
        rank = Ranked([one.logit for one in sizes], list(sizes.values()), self.sparsity, self.ramp)
        for one in sizes:
            refer(one, "rank", rank)
        first = next(iter(sizes))
        del first.__dict__["rank"]
        first.rank = rank  # registered here, and here alone

    def switches(self, logit: Tensor) -> Switches:
        """Gates with these logits."""
        beta = Stairs(1.0, self.beta_final, self.levels) if self.levels else Dial(1.0, self.beta_final)
        scale = 1.0
        if self.preserving:
            first = logit.new_tensor(self.s_init if self.sparsity is None else 0.0).double()
            scale = 1.0 / float(gates.soft(self.gate, torch.ones(()).double(), first))
        return Switches(logit, beta, self.gate, inclusive=self.variant == "thesis", scale=scale)

    def group_and_grain(self, name: str, weight: Tensor) -> tuple[str, gates.Grain]:
        """The group a weight's gates belong to, and how many entries of each dimension share one."""
        if not isinstance(self.granularity, str):
            group_and_dim = group_of(self.granularity, name)
            assert group_and_dim is not None
            group, dim = group_and_dim
            if not isinstance(dim, int):
                return group, gates.Slices(*dim)
            return group, tuple(self.size if d == dim else n for d, n in enumerate(weight.shape))
        if self.granularity == "weight":
            return name, (1,) * weight.ndim
        rows = (self.size if self.granularity != "channel" else 1,)
        columns = (self.size,) if self.granularity == "block" else ()
        return name, rows + columns + tuple(weight.shape[len(rows + columns) :])

    def project(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """The masked problem; of a layer whose channels all closed the best is kept, with a warning."""
        if self.sparsity is not None and isinstance(problem, Reparametrized) and problem.way_back == self:
            problem = with_target_sparsity(problem, self.round_to)
        elif self.round_to > 1:
            problem = with_round_widths(problem, self.round_to)
        return super().project(problem if self.granularity == "weight" else with_one_open(problem), fit)


def group_of(groups: MaskGroups, name: str) -> tuple[str, int | tuple[int, tuple[int, ...]]] | None:
    """The first group, and the dimension, whose globs fit the name."""
    return next(
        ((g, dim) for g, members in groups.items() for where, dim in members.items() if matches(name, where)),
        None,
    )
