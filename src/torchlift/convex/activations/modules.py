"""Activations as modules: any of the table as one, and torch's own recognized."""

from torch import Tensor, nn

from torchlift.convex.activations.base import Activation
from torchlift.convex.activations.piecewise import PReLU
from torchlift.convex.activations.table import get


class Act(nn.Module):
    """Any activation of the table as a module: ``Act("soft_threshold", t=0.1)``."""

    def __init__(self, name: str | Activation, **parameters: float) -> None:
        super().__init__()
        self.activation = get(name, **parameters)

    def forward(self, v: Tensor) -> Tensor:
        """σ(v)."""
        return self.activation(v)

    def extra_repr(self) -> str:
        """The activation."""
        return repr(self.activation)


def recognize(module: nn.Module) -> Activation | None:
    """The table's activation that a torch module computes, or None."""
    match module:
        case Act():
            return module.activation
        case nn.ReLU():
            return get("relu")
        case nn.LeakyReLU():
            return get("leaky_relu", slope=module.negative_slope)
        case nn.ELU():
            return get("elu", alpha=module.alpha)
        case nn.PReLU():
            return PReLU(module.weight.detach().clone())
        case nn.Hardtanh():  # ReLU6 is one of these
            return get("clip", lo=module.min_val, hi=module.max_val)
        case nn.Hardsigmoid():
            return get("hardsigmoid")
        case nn.Sigmoid():
            return get("sigmoid")
        case nn.Tanh():
            return get("tanh")
        case nn.Softshrink():
            return get("soft_threshold", t=module.lambd)
        case nn.Softplus() if module.beta == 1:
            return get("softplus")
        case nn.Softmax() if module.dim in (-1, 1):
            return get("softmax")
        case _:
            return None


def is_activation(module: nn.Module) -> bool:
    """Whether :func:`recognize` knows the module, without a look at its weights."""
    return isinstance(module, nn.PReLU) or recognize(module) is not None
