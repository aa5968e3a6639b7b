"""The methods of lifted training by name."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from torchlift.convex.activations import Activation
from torchlift.errors import TorchliftError
from torchlift.methods.lifted.bcd import BCD
from torchlift.methods.lifted.contrastive import Contrastive
from torchlift.methods.lifted.isgm import ISGM
from torchlift.methods.lifted.network import loss_activation
from torchlift.methods.lifted.soft import Soft
from torchlift.methods.lifted.splitting import Splitting
from torchlift.methods.lifted.unified import UnifiedISGM

Method = BCD | ISGM | Contrastive | Splitting | UnifiedISGM | Soft
METHODS: dict[str, type[Method]] = {
    "bcd": BCD,
    "isgm": ISGM,
    "contrastive": Contrastive,
    "splitting": Splitting,
    "unified": UnifiedISGM,
    "soft": Soft,
}


def as_method(
    method: str | Method,
    options: Mapping[str, Any],
    penalty: str = "bregman",
    mu: float | Sequence[float] = 1.0,
) -> Method:
    """The method called so, with its options; raises for an option it does not have, by name."""
    if isinstance(method, str) and method not in METHODS:
        raise TorchliftError(f"lifted: no method {method!r}; known: {', '.join(METHODS)}")
    kind = METHODS[method] if isinstance(method, str) else type(method)
    shared: dict[str, Any] = {} if penalty == "bregman" else {"penalty": penalty}
    shared |= {} if mu == 1.0 else {"mu": mu if isinstance(mu, int | float) else tuple(mu)}
    if kind is Splitting and shared:
        raise TorchliftError(
            "method 'splitting' has penalties of its own: set gamma and beta, leave penalty and mu out."
        )
    options = shared | dict(options)
    fields = [field.name for field in dataclasses.fields(kind)]
    unknown = [name for name in options if name not in fields]
    if unknown:
        name = method if isinstance(method, str) else kind.__name__
        raise TorchliftError(
            f"lifted: method {name!r} has no option {unknown[0]!r}; it has {', '.join(fields)}"
        )
    return kind(**options) if isinstance(method, str) else dataclasses.replace(method, **options)


def named_loss(loss: str | Activation) -> Activation:
    """The activation whose Bregman penalty is the loss."""
    return loss_activation(loss)
