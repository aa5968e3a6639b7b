"""Where an activation is a straight line: exactly (ReLU, hard tanh, …), or nearly (tanh, GELU, …)."""

import dataclasses
import math

from torch import nn

from torchlift.errors import TorchliftError
from torchlift.flow.ops import Flow

INF = math.inf


@dataclasses.dataclass(frozen=True)
class LinearPiece:
    """σ(z) = slope · z + offset for low < z < high.

    Up to ``error``: relative to the length of a bounded piece, absolute on an unbounded one.
    """

    low: float
    high: float
    slope: float = 1.0
    offset: float = 0.0
    error: float = 0.0

    @property
    def bounded(self) -> bool:
        """Whether inputs may have to be shrunk to fit in."""
        return self.high - self.low < INF


RIGHT = LinearPiece(0.0, INF)


def exact(module: nn.Module) -> tuple[LinearPiece, ...]:
    """The straight, sloping pieces of a piecewise linear activation; none for other modules."""
    match module:
        case nn.ReLU() | nn.ELU() | nn.CELU() | nn.RReLU():
            return (RIGHT,)
        case nn.LeakyReLU():
            return RIGHT, LinearPiece(-INF, 0.0, module.negative_slope)
        case nn.SELU():
            return (LinearPiece(0.0, INF, 1.0507009873554805),)
        case nn.ReLU6():
            return (LinearPiece(0.0, 6.0),)
        case nn.Hardtanh():
            return (LinearPiece(module.min_val, module.max_val),)
        case nn.Hardsigmoid():
            return (LinearPiece(-3.0, 3.0, 1 / 6, 1 / 2),)
        case nn.Hardswish():
            return (LinearPiece(3.0, INF),)
        case nn.Hardshrink():
            return LinearPiece(module.lambd, INF), LinearPiece(-INF, -module.lambd)
        case nn.Softshrink():
            edge = module.lambd
            return LinearPiece(edge, INF, 1.0, -edge), LinearPiece(-INF, -edge, 1.0, edge)
        case nn.Threshold():
            return (LinearPiece(module.threshold, INF),)
        case _:
            return ()


def nearly(module: nn.Module, tolerance: float) -> tuple[LinearPiece, ...]:
    """A piece of a smooth activation that is straight up to ``tolerance`` of the length used of it.

    tanh(z) = z − z³/3 + … on |z| ≤ r: error r²/3 per unit; sigmoid: r²/12, softsign: r. GELU, SiLU, softplus
    and Mish approach z: from the point taken on, less than ``tolerance`` is missing.
    """
    far = -math.log(tolerance) + 4.0  # e^(−far) · far < tolerance, with room
    match module:
        case nn.Tanh():
            reach = math.sqrt(3 * tolerance)
            return (LinearPiece(-reach, reach, 1.0, 0.0, tolerance),)
        case nn.Sigmoid():
            reach = math.sqrt(12 * tolerance)
            return (LinearPiece(-reach, reach, 1 / 4, 1 / 2, tolerance),)
        case nn.Softsign():
            return (LinearPiece(-tolerance, tolerance, 1.0, 0.0, tolerance),)
        case nn.SiLU() | nn.Mish():
            return (LinearPiece(far, INF, 1.0, 0.0, tolerance),)
        case nn.Softplus():  # log(1 + e^(−z)) ≤ e^(−z) is missing, from the threshold on nothing
            start = min(-math.log(tolerance), module.threshold)
            return (LinearPiece(start / module.beta, INF, 1.0, 0.0, tolerance / module.beta),)
        case nn.GELU():
            return (LinearPiece(math.sqrt(2 * far), INF, 1.0, 0.0, tolerance),)
        case _:
            return ()


FUNCTIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "leaky_relu": nn.LeakyReLU,
    "hardtanh": nn.Hardtanh,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "softplus": nn.Softplus,
}
"""Activations that models call as functions, as modules with their default settings."""


def segments(module: nn.Module, tolerance: float, who: str) -> tuple[LinearPiece, ...]:
    """The pieces to put neurons on; an error for an activation that is straight nowhere."""
    straight = exact(module) or nearly(module, tolerance)
    if not straight:
        raise TorchliftError(
            f"{who}: {type(module).__name__} has no known straight piece; "
            "pass activation=nn.ReLU() or another of torch.nn that has one."
        )
    return straight


def nearest_activation(body: nn.Module, shape: Flow, name: str, who: str) -> nn.Module:
    """The activation after the named layer, or else the last one before it, or the first after it."""
    positions = [position for position, op in enumerate(shape.ops) if op.kind == "layer" and op.name == name]
    here = positions[0] if positions else 0
    bends = [(position, op) for position, op in enumerate(shape.ops) if op.kind == "activation"]
    own = [op for _, op in bends if op.layer == name]
    before = [op for position, op in reversed(bends) if position < here]
    activation = next(iter([*own, *before, *(op for _, op in bends)]), None)
    if activation is not None:
        module = body.get_submodule(activation.name)
        if type(module).__module__.startswith("torch.nn.modules.activation"):
            return module
        if activation.function in FUNCTIONS:
            return FUNCTIONS[activation.function]()
    raise TorchliftError(f"{who}: found no activation near {name!r}; pass activation=nn.ReLU() or the like.")
