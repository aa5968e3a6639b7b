"""The node of an inserted layer: W″ σ(W′ h + b′) + b″ in place of W h + b."""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from torchlift.core import Dial, Node
from torchlift.flow.affine import Moments, by_row, composed_weight, feature_rows
from torchlift.methods.depth.factor import (
    carried,
    composed,
    copy_into,
    fit_inside,
    grouped_factors,
    in_double,
    orthogonal,
    pointwise,
    resized_layer,
)
from torchlift.methods.depth.segments import LinearPiece


class Deeper(Node):
    """h ↦ W″ a + b″ with a = σ(W′ h + b′), or σ(W′ h + b′) + h where residual.

    Until :meth:`set_on_pieces` is called it is the layer it stands for, and notes the range of W′ h. With
    ``fade`` the activation turns into its straight pieces as t goes to 1, so that merging loses nothing.
    """

    slope: Tensor
    offset: Tensor

    def __init__(
        self, layer: nn.Module, width: int | None, residual: bool, seed: int | None, fade: bool
    ) -> None:
        super().__init__()
        weight = layer.get_parameter("weight")
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        flat = weight.detach().flatten(1).double().cpu()
        self.axis = -1 if isinstance(layer, nn.Linear) else 1
        self.residual, self.seed = residual, seed
        self.groups: int = getattr(layer, "groups", 1)
        self.options = {"inner" if residual else "outer": {}}  # the layer is the other one
        if residual:
            features = weight.shape[1]
            self.inner = pointwise(layer, features, features)
            self.outer = copy.deepcopy(layer)
            start = orthogonal(features, generator, flat) / 2
        else:
            each = len(flat) // self.groups
            features = self.groups * min(each, flat.shape[1]) if width is None else width
            second, start = grouped_factors(flat, self.groups, features, generator)
            self.inner = resized_layer(layer, features)
            self.outer = pointwise(layer, features, len(weight))
            copy_into(self.outer.get_parameter("weight"), second)
        copy_into(self.inner.get_parameter("weight"), start)
        self.activation: nn.Module = nn.Identity()
        self.fade = Dial(0.0, 1.0, "linear") if fade else None
        self.register_buffer("slope", weight.new_ones(features))
        self.register_buffer("offset", weight.new_zeros(features))
        self.template = (copy.deepcopy(layer).to("meta"),)  # in a tuple: no part of the module tree
        self.original: list[nn.Module] = [layer]
        self.observe: Callable[[Tensor, Tensor], None] | None = None

    def forward(self, h: Tensor) -> Tensor:
        """The two layers; before they are placed, the one."""
        z = self.inner(h)
        if self.original:
            if self.observe is not None:
                self.observe(z, z)
            return self.original[0](h)
        a = self.bent(z)
        if self.observe is not None:
            self.observe(z, a)
        return self.outer(a + h if self.residual else a)

    def bent(self, z: Tensor) -> Tensor:
        """σ(z), or on the way from it to its straight pieces."""
        a = self.activation(z)
        if self.fade is None:
            return a
        shape = (-1, *[1] * (z.ndim - 2)) if self.axis == 1 else (-1,)
        return torch.lerp(a, self.slope.view(shape) * z + self.offset.view(shape), self.fade().to(z.dtype))

    @torch.no_grad()
    def set_on_pieces(
        self, activation: nn.Module, pieces: Sequence[LinearPiece], seen: Moments, margin: float
    ) -> None:
        """Put every neuron on a straight piece, by the ranges seen, and make up for it after it (eq. 4.2)."""
        layer = self.original.pop()
        self.activation = copy.deepcopy(activation)
        features = len(self.slope)
        generator = torch.Generator().manual_seed(self.seed or 0)
        chosen = torch.randint(len(pieces), (features,), generator=generator).tolist()
        chosen = [0] * features if self.seed is None else chosen

        def of(name: str) -> Tensor:
            return torch.tensor([getattr(pieces[k], name) for k in chosen], dtype=torch.float64)

        slope, offset = of("slope"), of("offset")
        scale, shift = fit_inside(seen.low.cpu(), seen.high.cpu(), of("low"), of("high"), margin)
        inner = by_row(scale, in_double(self.inner.get_parameter("weight")))
        weight, own = in_double(layer.get_parameter("weight")), layer.bias
        bias = in_double(own) if isinstance(own, Tensor) else weight.new_zeros(len(weight))
        if self.residual:
            back = torch.linalg.inv(
                slope[:, None] * inner.flatten(1) + torch.eye(features, dtype=torch.float64)
            )
            outer = composed_weight(weight, back.view_as(inner))
        else:
            group_weights = in_double(self.outer.get_parameter("weight")).chunk(self.groups)
            sizes = (slope * scale).view(self.groups, 1, -1, *[1] * (weight.ndim - 2))
            outer = torch.cat([block / size for block, size in zip(group_weights, sizes, strict=True)])
        copy_into(self.inner.get_parameter("weight"), inner)
        copy_into(self.inner.get_parameter("bias"), shift)
        copy_into(self.outer.get_parameter("weight"), outer)
        copy_into(
            self.outer.get_parameter("bias"), bias - carried(outer, slope * shift + offset, self.groups)
        )
        copy_into(self.slope, slope)
        copy_into(self.offset, offset)

    def project(self) -> nn.Module:
        """The merged layer; λ and μ are those of the straight pieces, or of the fit last made to data."""
        layer = copy.deepcopy(self.template[0]).to_empty(device=self.slope.device).to(self.slope.dtype)
        slope, offset = in_double(self.slope), in_double(self.offset)
        inner, outer = (
            in_double(self.inner.get_parameter("weight")),
            in_double(self.outer.get_parameter("weight")),
        )
        shift = slope * in_double(self.inner.get_parameter("bias")) + offset
        with torch.no_grad():
            weight = composed(outer, by_row(slope, inner), self.groups)
            weight = weight + outer if self.residual else weight
            copy_into(layer.get_parameter("weight"), weight)
            moved, back = carried(outer, shift, self.groups), in_double(self.outer.get_parameter("bias"))
            if not isinstance(layer.bias, Tensor) and not vanishes(moved + back, moved, self.slope.dtype):
                layer.register_parameter("bias", nn.Parameter(self.slope.new_empty(len(weight))))
            if isinstance(layer.bias, Tensor):
                copy_into(layer.get_parameter("bias"), moved + back)
        return layer

    @torch.no_grad()
    def refit(self, seen: Moments) -> None:
        """λ and μ of least squares on what was seen, neuron by neuron."""
        slope, offset = seen.fit(self.slope.to(seen.x))
        self.slope.copy_(slope)
        self.offset.copy_(offset)


def vanishes(total: Tensor, summand: Tensor, dtype: torch.dtype) -> bool:
    """Whether a sum that cancels is rounding: a layer without a bias, not trained since it was lifted."""
    return float(total.abs().max()) <= 1000 * torch.finfo(dtype).eps * (1 + float(summand.abs().max()))


class Gather:
    """Adds up the moments of what a node shows it."""

    def __init__(self, axis: int) -> None:
        self.axis = axis
        self.seen: Moments | None = None

    def __call__(self, z: Tensor, a: Tensor) -> None:
        """One call's inputs and outputs of the activation."""
        moments = Moments.of(feature_rows(z, self.axis), feature_rows(a, self.axis))
        self.seen = moments if self.seen is None else self.seen + moments
