"""The first convolution in the whitened coordinates of its own input patches, initialized there."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from torchlift.core import Batch, Fit, Node, Problem, Reparametrized, WeightLift, needs_fit
from torchlift.core.selection import select
from torchlift.core.stored import owner_of
from torchlift.errors import TorchliftError
from torchlift.loss import evaluating, inputs_and_target
from torchlift.tree import leaves, like

Convolutional = nn.Conv1d | nn.Conv2d | nn.Conv3d
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def patches(layer: Convolutional, x: Tensor) -> Tensor:
    """Every patch that a convolution reads, as rows: input channels by kernel positions."""
    dims = len(layer.kernel_size)
    for dim in range(dims):
        reach = layer.dilation[dim] * (layer.kernel_size[dim] - 1) + 1
        x = x.unfold(2 + dim, reach, layer.stride[dim])[..., :: layer.dilation[dim]]
    order = [0, *range(2, 2 + dims), 1, *range(2 + dims, 2 + 2 * dims)]
    return x.permute(order).flatten(1 + dims).flatten(0, dims)


def symmetric_whitening(rows: Tensor, damping: float) -> Tensor:
    """P = U (Λ + damping · λ_max)^(−1/2) Uᵀ over its mean diagonal, U Λ Uᵀ the covariance of the rows."""
    centered = (rows - rows.mean(0)).double()
    values, vectors = torch.linalg.eigh(centered.T @ centered / len(rows))
    values = values.clamp(min=0)
    inverse = (values + damping * values.max()).rsqrt()
    matrix = (vectors * inverse) @ vectors.T
    return (matrix / matrix.diagonal().mean()).to(rows)


class WhitenedKernel(Node):
    """W = V P with P fixed: V is what is trained."""

    whitening: Tensor

    def __init__(self, weight: Tensor, whitening: Tensor) -> None:
        super().__init__()
        self.coordinates = nn.Parameter(weight.clone())
        self.register_buffer("whitening", whitening)

    def forward(self) -> Tensor:
        """The kernel."""
        return (self.coordinates.flatten(1) @ self.whitening).view_as(self.coordinates)

    def project(self) -> Tensor:
        """The kernel, for good."""
        return self()


@dataclasses.dataclass(frozen=True)
class Whitened(WeightLift):
    """W = V P, P = U (Λ + ε λ_max)^(−1/2) Uᵀ / mean diagonal, U Λ Uᵀ the covariance of the layer's patches.

    V is drawn from the layer's own initialization: this lift does not start as the same function (in
    whitened coordinates of the old weights nothing is gained). One pass over ``samples`` training inputs; at
    the end W is written back, and nothing is left of P. ``where``: a glob on weights of convolutions, or
    "first", the convolution that runs first. Pays for convolutional networks on pictures, best with Muon or
    a norm behind the layer; not for patch embeddings of transformers.
    """

    where: str = "first"
    samples: int = 500
    damping: float = 5e-4
    batches: tuple[Batch, ...] = dataclasses.field(default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.samples < 2 or not self.damping > 0:
            raise TorchliftError(f"{self!r}: samples must be at least 2 and damping positive.")

    @property
    def preserving(self) -> bool:
        """No: the weights are initialized again."""
        return False

    def nodes(self, weights: Mapping[str, Tensor]) -> Mapping[str, Node]:
        """Identity coordinates, where nothing is known of the inputs."""
        return {n: WhitenedKernel(w, torch.eye(w[0].numel()).to(w)) for n, w in weights.items()}

    def lift(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """A copy of the problem with new kernels in whitened coordinates."""
        x = self.inputs(fit)
        seen = padded_inputs(problem, x, self.eligible(problem))
        names = list(seen)[:1] if self.where == "first" else select(seen, self.where, repr(self))
        if not names:
            raise TorchliftError(f"{self!r}: no convolution without groups runs on these inputs.")
        nodes: dict[str, WhitenedKernel] = {}
        for name in names:
            layer = cast(Convolutional, owner_of(problem, name)[0])
            rows = patches(layer, seen[name])
            if len(rows) < rows.shape[1]:
                raise TorchliftError(
                    f"{self!r}: {rows.shape[1]} inputs of {name}, only {len(rows)} patches: raise samples."
                )
            nodes[name] = WhitenedKernel(fresh_weight(layer), symmetric_whitening(rows, self.damping))
        for node in nodes.values():
            node.way_back = self
        return Reparametrized(copy.deepcopy(problem), nodes, self)

    def inputs(self, fit: Fit | None) -> Any:
        """The first training inputs."""
        if fit is None and not self.batches:
            raise needs_fit(self, "looks at training inputs:")
        collected: list[Any] = []
        count = 0
        for batch in self.batches or cast(Fit, fit).batches():
            collected.append(inputs_and_target(batch)[0])
            count += len(next(leaves(collected[-1])))
            if count >= self.samples:
                break
        if isinstance(collected[0], Mapping):
            return {k: torch.cat([x[k] for x in collected])[: self.samples] for k in collected[0]}
        return torch.cat(collected)[: self.samples]


@torch.no_grad()
def padded_inputs(problem: Problem, x: Any, eligible: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What each convolution without groups reads, padded as it pads, by the name of its weight, in order."""
    seen: dict[str, Tensor] = {}
    layers = {name: owner_of(problem, name)[0] for name in eligible}

    def record_input(name: str, layer: Convolutional) -> Any:
        def hook(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            seen.setdefault(name, padded_input(layer, args[0].detach()))

        return layer.register_forward_pre_hook(hook)

    hooks = [record_input(n, m) for n, m in layers.items() if isinstance(m, CONVOLUTIONS) and m.groups == 1]
    try:
        weight = next(problem.parameters(), None)
        with evaluating(problem), torch.random.fork_rng(devices=[]):
            problem.predict(x if weight is None else like(x, weight))
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def padded_input(layer: Convolutional, x: Tensor) -> Tensor:
    """The input as the kernel slides over it."""
    x = x.unsqueeze(0) if x.ndim == len(layer.kernel_size) + 1 else x
    both = [side for size in reversed(padding_of(layer)) for side in (size, size)]
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return nn.functional.pad(x, both, mode=mode) if any(both) else x


def padding_of(layer: Convolutional) -> tuple[int, ...]:
    """Padding as numbers; "same" to half the reach."""
    if isinstance(layer.padding, str):
        reach = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
        return tuple(0 if layer.padding == "valid" else r // 2 for r in reach)
    return tuple(layer.padding)


def fresh_weight(layer: Convolutional) -> Tensor:
    """A weight from the layer's own initialization."""
    fresh = copy.deepcopy(layer)
    fresh.reset_parameters()
    return fresh.weight.detach()
