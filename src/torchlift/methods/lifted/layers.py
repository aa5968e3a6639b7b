"""v = A u + b, u⁺ = σ(v): one layer of an ordinary module as the block solvers see it."""

import abc
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchlift.convex.activations import Act, Activation, LeakyReLU, PReLU
from torchlift.convex.operators.modules import pair
from torchlift.convex.pullback import pullback
from torchlift.errors import TorchliftError
from torchlift.methods.lifted.solvers.conv import ConvolutionGeometry, image_rows

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d
_POWER_STEPS = 30
_SAFETY = 1.02


def folded(norm: BatchNorm) -> tuple[Tensor, Tensor]:
    """A batch norm in eval mode is v ↦ scale·v + shift."""
    if norm.running_mean is None or norm.running_var is None:
        raise TorchliftError(f"{norm} keeps no running statistics: it cannot be read as an affine map")
    scale = (norm.running_var + norm.eps).rsqrt()
    scale = scale * norm.weight if norm.affine else scale
    shift = -norm.running_mean * scale
    return scale.detach(), (shift + norm.bias if norm.affine else shift).detach()


class _Selection(nn.Module):
    """The entries a max-pooling picked, picked again."""

    def __init__(self, index: Tensor) -> None:
        super().__init__()
        self.index = index

    def forward(self, u: Tensor) -> Tensor:
        """One entry per window."""
        return u.flatten(2).gather(2, self.index.flatten(2)).reshape(self.index.shape)


def _selections(before: nn.Sequential, like: Tensor) -> Iterator[nn.Module]:
    for module in before:
        if isinstance(module, nn.MaxPool2d):
            index = functional.max_pool2d(
                like,
                module.kernel_size,
                module.stride,
                module.padding,
                module.dilation,
                module.ceil_mode,
                return_indices=True,
            )[1]
            yield _Selection(index)
        else:
            yield module
        like = module(like)


class Layer(abc.ABC):
    """A trained affine map after fixed linear ones (pooling, flattening), with the activation that follows.

    ``theta`` = [W | b] is out × (in + 1) and belongs to the solvers; ``write_back`` puts it into the module.
    A batch norm that follows (in eval mode) is folded into θ and unfolded again.
    """

    def __init__(
        self, name: str, module: nn.Linear | nn.Conv2d, before: nn.Sequential, norm: BatchNorm | None
    ) -> None:
        self.name, self.module, self.before, self.norm = name, module, before, norm
        self.activation: Activation | None = None
        self.source: nn.Module | None = None
        self.bias = module.bias is not None or (norm is not None and norm.affine)
        weight = module.weight.detach().flatten(1)
        bias = weight.new_zeros(len(weight)) if module.bias is None else module.bias.detach()
        if norm is not None:
            scale, shift = folded(norm)
            if bool((scale == 0).any()):
                raise TorchliftError(f"layer {name!r}: its batch norm switches a unit off (weight 0)")
            weight, bias = scale[:, None] * weight, scale * bias + shift
        self.theta = torch.cat([weight, bias[:, None]], 1).clone()

    @property
    def weight(self) -> Tensor:
        """W, out × in."""
        return self.theta[:, :-1]

    @abc.abstractmethod
    def rows(self, u: Tensor) -> Tensor:
        """The input as rows, so that v's rows are rows·Wᵀ + b."""

    @abc.abstractmethod
    def rows_of(self, v: Tensor) -> Tensor:
        """A state of this layer as rows."""

    def forward(self, u: Tensor) -> Tensor:
        """v = A u + b."""
        return self._apply(self.before(u))

    @abc.abstractmethod
    def _apply(self, below: Tensor) -> Tensor:
        """The trained map alone."""

    @abc.abstractmethod
    def _adjoint(self, out: Tensor, shape: torch.Size) -> Tensor:
        """The adjoint of its linear part."""

    def adjoint(self, out: Tensor, like: Tensor) -> Tensor:
        """Aᵀ out, in the shape of ``like`` (at ``like``, where maxima are taken)."""
        if len(self.before) == 0:
            return self._adjoint(out, like.shape)
        inner, pull = pullback(self.before, like)
        return pull(self._adjoint(out, inner.shape))

    @property
    def pooled(self) -> bool:
        """Whether maxima are taken before the trained map, so that A depends on the state."""
        return any(isinstance(m, nn.MaxPool2d) for m in self.before)

    def frozen(self, like: Tensor) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
        """The affine map u ↦ A u + b and its adjoint with maxima taken where ``like`` has them."""
        if not self.pooled:
            return self.forward, lambda out: self.adjoint(out, like[: len(out)])
        select = nn.Sequential(*_selections(self.before, like))
        picked, pull = pullback(select, like)
        back = lambda out: pull(self._adjoint(out, picked.shape))
        return lambda u: self._apply(select(u)), back

    def norm_of(self, like: Tensor) -> float:
        """‖A‖₂ for inputs like the given one: exact for matrices, else by power iteration and 2 % more.

        A maximum picks an entry once for every window it is in: its norm is the root of that number.
        """
        if self.flat:
            w = self.weight
            gram = w @ w.mT if len(w) < w.shape[1] else w.mT @ w
            return float(torch.linalg.eigvalsh(gram.double())[-1].clamp(min=0).sqrt())
        if self.pooled:
            windows = 1
            for pool in [m for m in self.before if isinstance(m, nn.MaxPool2d)]:
                for kernel, stride in zip(pair(pool.kernel_size), pair(pool.stride), strict=True):
                    windows *= -(-kernel // stride)
            some = self.before(like[:1])
            return windows**0.5 * self._power(self._apply, lambda out: self._adjoint(out, some.shape), some)
        return self._power(self.forward, lambda out: self.adjoint(out, like[:1]), like[:1])

    def _power(
        self, forward: Callable[[Tensor], Tensor], adjoint: Callable[[Tensor], Tensor], like: Tensor
    ) -> float:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(like.shape, generator=generator).to(like)
        origin = forward(torch.zeros_like(x))
        size = x.norm()
        for _ in range(_POWER_STEPS):
            x = adjoint(forward(x / size) - origin)
            size = x.norm()
            if float(size) == 0:
                return 0.0
        return _SAFETY * float(size) ** 0.5

    @property
    @abc.abstractmethod
    def flat(self) -> bool:
        """Whether A is just the matrix W (up to reshaping)."""

    def write_back(self) -> None:
        """Put θ into the module, unfolding the batch norm."""
        weight, bias = self.weight, self.theta[:, -1]
        self._write_slopes()
        if self.norm is not None:
            scale, shift = folded(self.norm)
            weight = weight / scale[:, None]
            bias = (bias - shift) / scale
            if self.module.bias is None and self.norm.affine:
                self.norm.bias.detach().add_(bias * scale)
        self.module.weight.detach().copy_(weight.reshape(self.module.weight.shape))
        if self.module.bias is not None:
            self.module.bias.detach().copy_(bias)

    def _write_slopes(self) -> None:
        match self.source, self.activation:
            case nn.LeakyReLU(), LeakyReLU():
                self.source.negative_slope = self.activation.slope
            case nn.PReLU(), PReLU():
                self.source.weight.detach().copy_(self.activation.slopes)
            case Act(), LeakyReLU():
                self.source.activation = self.activation
            case _:
                pass


class DenseLayer(Layer):
    """nn.Linear."""

    @property
    def flat(self) -> bool:
        """Without pooling or batch norm in front, yes."""
        return all(isinstance(m, nn.Flatten) for m in self.before)

    def rows(self, u: Tensor) -> Tensor:
        """The samples."""
        return self.before(u)

    def rows_of(self, v: Tensor) -> Tensor:
        """The samples."""
        return v

    def _apply(self, below: Tensor) -> Tensor:
        """U Wᵀ + b."""
        return torch.addmm(self.theta[:, -1], below, self.weight.mT)

    def _adjoint(self, out: Tensor, shape: torch.Size) -> Tensor:
        return out @ self.weight


class Conv(Layer):
    """nn.Conv2d."""

    def __init__(self, name: str, module: nn.Conv2d, before: nn.Sequential, norm: BatchNorm | None) -> None:
        super().__init__(name, module, before, norm)
        kernel, stride, dilation = module.kernel_size, module.stride, module.dilation
        padding = module.padding
        if isinstance(padding, str):
            raise TorchliftError(f"layer {name!r}: padding={padding!r} is not supported; give it in numbers")
        self.geometry = ConvolutionGeometry(pair(kernel), pair(stride), pair(padding), pair(dilation))
        self.kernel_shape = module.weight.shape

    @property
    def flat(self) -> bool:
        """Never."""
        return False

    def rows(self, u: Tensor) -> Tensor:
        """One patch per sample and position (im2col)."""
        return self.geometry.patches(self.before(u))

    def rows_of(self, v: Tensor) -> Tensor:
        """One row of channels per sample and position."""
        return image_rows(v)

    def _kernel(self) -> Tensor:
        return self.weight.reshape(self.kernel_shape)

    def _apply(self, below: Tensor) -> Tensor:
        """W * u + b."""
        return self.geometry.forward(below, self._kernel()) + self.theta[:, -1, None, None]

    def _adjoint(self, out: Tensor, shape: torch.Size) -> Tensor:
        return self.geometry.adjoint_input(shape, self._kernel(), out)
