"""Root-mean-square norms, of torch and of others, told by what they compute."""

import dataclasses
from typing import Any, Literal

import torch
from torch import Tensor, nn

Kind = Literal["rms", "rms+1"]

EPS = ("eps", "variance_epsilon", "epsilon", "norm_eps")


@dataclasses.dataclass(frozen=True)
class Form:
    """How such a module names its ε."""

    eps: str

    def value(self, module: nn.Module, like: Tensor) -> float:
        """ε; torch takes that of the number type where none is given."""
        given = getattr(module, self.eps)
        return torch.finfo(like.dtype).eps if given is None else float(given)

    def kind(self, module: Any, x: Tensor, out: Tensor) -> Kind | None:
        """``"rms"`` for x̂ w, ``"rms+1"`` for x̂ (1 + w) with x̂ = x / √(mean x² + ε); None for neither."""
        if out.shape != x.shape or x.shape[-1:] != module.weight.shape:
            return None
        scaled = x.double() * torch.rsqrt(x.double().square().mean(-1, keepdim=True) + self.value(module, x))
        weight = module.weight.detach().double()
        kinds: tuple[tuple[Kind, Tensor], ...] = ("rms", weight), ("rms+1", 1 + weight)
        for kind, factor in kinds:
            if torch.allclose(scaled * factor, out.double(), rtol=1e-4, atol=1e-5):
                return kind
        return None


def rms_form(module: nn.Module) -> Form | None:
    """The form of a module that may be such a norm: one vector ``weight``, an ε, no children."""
    own = dict(module.named_parameters(recurse=False))
    known = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)  # pyright: ignore[reportPrivateUsage]
    if isinstance(module, known) or set(own) != {"weight"} or own["weight"].ndim != 1:
        return None
    if any(True for _ in module.children()):
        return None
    name = next((eps for eps in EPS if hasattr(module, eps)), None)
    return None if name is None else Form(name)


def scaled_rms(weight: Tensor, eps: float, before: int, after: int, kind: Kind) -> tuple[Tensor, float]:
    """Weight and ε that give the same output from ``after`` of ``before`` features, the others being zero.

    Σx²/D + ε = (d/D)(Σx²/d + ε·D/d), hence w ← w·√(D/d) and ε ← ε·D/d; of 1 + w the sum is scaled.
    """
    ratio = before / after
    factor = ratio**0.5
    return (weight * factor if kind == "rms" else (1 + weight) * factor - 1), eps * ratio
