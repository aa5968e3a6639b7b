"""Bits of activations: noise in the range of an activation, then values on a uniform grid (SMOL-A, PACT)."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from torchlift.core import Fit, ModuleLift, Node, Problem, needs_fit, nodes
from torchlift.errors import TorchliftError
from torchlift.loss import evaluating, inputs_and_target
from torchlift.methods.precision.called_activations import with_activation_modules
from torchlift.methods.precision.grids import ADAM, bits, integer, logit

RANGES: dict[type[nn.Module], tuple[float, float]] = {
    nn.Sigmoid: (0.0, 1.0),
    nn.Hardsigmoid: (0.0, 1.0),
    nn.Tanh: (-1.0, 1.0),
    nn.ReLU6: (0.0, 6.0),
}
"""Where the values of an activation lie; a ReLU is clipped at a learned α (PACT), so that M = α."""


def quantized(u: Tensor, p: Tensor, low: float, width: Tensor | float) -> Tensor:
    """low + δ [(u − low)/δ] with δ = M / (2^p − 1): 2^p values, both ends among them; gradient 1 within."""
    step = width / (torch.exp2(p.to(u.dtype)) - 1)
    value = low + step * torch.round((u - low) / step)
    return value.detach() + (u - u.detach())


class Ranged(nn.Module):
    """An activation and its range: that of its kind, or [0, α] with α learned (Choi et al. 2018)."""

    def __init__(self, inner: nn.Module, clip: float) -> None:
        super().__init__()
        self.inner = inner
        bounds = RANGES.get(type(inner))
        if bounds is None:
            weight = next((p for p in inner.parameters()), None)
            self.alpha = nn.Parameter(torch.tensor(clip) if weight is None else weight.new_tensor(clip))
        self.low, self.high = bounds or (0.0, clip)

    def forward(self, x: Tensor) -> Tensor:
        """u in its range; ∂u/∂α = 1 where it is clipped."""
        u = self.inner(x)
        return torch.minimum(u, self.alpha) if "alpha" in self._parameters else u

    def width(self) -> Tensor | float:
        """M."""
        return self.alpha if "alpha" in self._parameters else self.high - self.low


class GridActivation(nn.Module):
    """Q(u): the activation on 2^p values of its range, p bits per unit or for all; straight-through."""

    bits: Tensor

    def __init__(self, ranged: Ranged, bits: Tensor) -> None:
        super().__init__()
        self.ranged = ranged
        self.register_buffer("bits", bits)

    def forward(self, x: Tensor) -> Tensor:
        """The value on the grid."""
        return quantized(self.ranged(x), self.bits, self.ranged.low, self.ranged.width())


class NoisyActivation(Node):
    """u + (M/2) σ(s) ⊙ ε, ε ~ U(±1), M the activation's range; penalty λ Σ log₂(1 + e^(−s))."""

    options: Mapping[str, Mapping[str, Any]] = {
        "logit": {"optimizer": ADAM, "weight_decay": 0.0},
        "inner.alpha": {"weight_decay": 0.0},
    }

    def __init__(self, inner: nn.Module, lift: "ActivationPrecision") -> None:
        super().__init__()
        self.inner, self.lift = Ranged(inner, lift.clip), lift
        self.logit = nn.Parameter(torch.tensor(float(logit(lift.p_init))))
        self.seen: tuple[int, ...] = ()

    def forward(self, x: Tensor) -> Tensor:
        """A draw while training, the activation in its range otherwise."""
        u = self.inner(x)
        if not torch.compiler.is_compiling():
            self.seen = tuple(u.shape[1:])
        if not self.training:
            return u
        return u + self.inner.width() / 2 * torch.sigmoid(self.logit) * torch.empty_like(u).uniform_(-1, 1)

    def penalty(self) -> Tensor | float:
        """λ Σ (p − 1)."""
        return self.lift.strength * (bits(self.logit) - 1).sum()

    def project(self) -> nn.Module:
        """The activation on whole bits."""
        with torch.no_grad():
            return GridActivation(self.inner, integer(bits(self.logit), self.lift.rounding))


class RangedActivations(ModuleLift):
    """A lift of activations that have a range: modules, or functions that a forward calls (``F.relu``)."""

    node: ClassVar[Callable[[nn.Module, Any], Node]]
    """What an activation becomes under the lift."""

    @property
    def preserving(self) -> bool:
        """No: a ReLU is clipped, and values may be on a grid."""
        return False

    @property
    def reshapes(self) -> bool:
        """A quantized activation is a module of its own."""
        return True

    def accepts_module(self, module: nn.Module) -> str | None:
        """Only activations with a range."""
        kinds = (nn.ReLU, *RANGES)
        return None if type(module) in kinds else "is not a ReLU, ReLU6, sigmoid or tanh"

    def nodes(self, modules: Mapping[str, nn.Module]) -> Mapping[str, Node]:
        """A node for each activation."""
        return {name: type(self).node(module, self) for name, module in modules.items()}

    def lift(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """A copy of the problem with nodes around its activations."""
        lifted = super().lift(with_activation_modules(problem), fit)
        match_model(lifted, self)
        return lifted


@dataclasses.dataclass(frozen=True)
class ActivationPrecision(RangedActivations):
    """min over w, s, α of E f(u + (M/2) σ(s) ⊙ ε) + λ Σ log₂(1 + e^(−s)); then u on 2^p values of its range.

    Savarese, thesis §5.4.3 (SMOL-A). Activations that are modules, or that a forward calls (``F.relu``): ReLU
    (clipped at a learned α that starts at ``clip``), ReLU6, sigmoid, tanh. ``granularity``: one precision per
    ``"tensor"``, or per ``"unit"`` as in the source, whose shape is read from a batch of ``fit``. Not
    function-preserving: a ReLU is clipped.
    """

    where: str = "*"
    p_init: float = 8
    strength: float = 1e-7
    rounding: Literal["floor", "round"] = "floor"
    granularity: Literal["tensor", "unit"] = "tensor"
    clip: float = 6.0
    node: ClassVar[Callable[[nn.Module, Any], Node]] = NoisyActivation

    def __post_init__(self) -> None:
        logit(self.p_init)
        if self.granularity not in ("tensor", "unit"):
            raise TorchliftError(f"granularity {self.granularity!r} is not known: 'tensor' or 'unit'.")
        if not self.clip > 0:
            raise TorchliftError(f"clip is where a ReLU's range ends, above 0; got {self.clip}.")

    def lift(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """A copy of the problem whose activations are noisy."""
        lifted = super().lift(problem, fit)
        if self.granularity == "unit":
            if fit is None:
                raise needs_fit(self, "reads the shapes of activations from data:")
            shape_units(lifted, inputs_and_target(next(iter(fit.batches())))[0], self.p_init)
        return lifted


def match_model(lifted: Problem, lift: ModuleLift) -> None:
    """Put nodes around modules without weights on the model's device and in its precision."""
    own = [node for _, node in nodes(lifted) if node.way_back == lift]
    added = {id(p) for node in own for p in node.parameters()}
    like = next((p for p in lifted.parameters() if p.is_floating_point() and id(p) not in added), None)
    if like is not None:
        for node in own:
            node.to(like.device, like.dtype)


def shape_units(lifted: Problem, x: Any, p_init: float) -> None:
    """Give every unit its own logit, by the shapes that one batch shows."""
    with evaluating(lifted), torch.no_grad(), torch.random.fork_rng(devices=[]):
        lifted.predict(x)
    for node in lifted.modules():
        if isinstance(node, NoisyActivation):
            node.logit = nn.Parameter(torch.full(node.seen, float(logit(p_init))).to(node.logit))
