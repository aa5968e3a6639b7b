"""Random convolutional networks: most ways in which channels get coupled, drawn from a seed."""

import random
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Padding = Literal["zeros", "circular", "reflect"]

ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (
    nn.ReLU,
    nn.ReLU6,
    nn.Hardswish,
    nn.SiLU,
    nn.GELU,
    nn.Tanh,
    nn.Sigmoid,
    nn.LeakyReLU,
    nn.ELU,
)


class RandomResidual(nn.Module):
    """x + f(x), with a projection where sizes differ."""

    def __init__(self, body: nn.Module, short: nn.Module) -> None:
        super().__init__()
        self.body, self.short = body, short

    def forward(self, x: Tensor) -> Tensor:
        """The sum."""
        return self.body(x) + self.short(x)


class Branches(nn.Module):
    """f(x) and g(x) side by side."""

    def __init__(self, left: nn.Module, right: nn.Module) -> None:
        super().__init__()
        self.left, self.right = left, right

    def forward(self, x: Tensor) -> Tensor:
        """Both, concatenated."""
        return torch.cat([self.left(x), self.right(x)], 1)


class Squeeze(nn.Module):
    """x · σ(W₂ a(W₁ mean x)): squeeze and excitation."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """The rescaled map."""
        scale = torch.sigmoid(self.up(functional.relu(self.down(x.mean((2, 3))))))
        return x * scale[:, :, None, None]


class RandomGate(nn.Module):
    """a ⊙ σ(b) of the two halves of the channels."""

    def forward(self, x: Tensor) -> Tensor:
        """The gated half."""
        a, b = x.chunk(2, 1)
        return a * torch.sigmoid(b)


class Shuffle(nn.Module):
    """Channels of groups dealt out."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """The shuffled map."""
        n, c, h, w = x.shape
        return x.view(n, self.groups, c // self.groups, h, w).transpose(1, 2).reshape(n, c, h, w)


class RandomCNN:
    """Draws a network; ``draw()`` gives (network, example)."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        torch.manual_seed(seed)
        self.size = self.dice.choice([8, 12])

    def draw(self) -> tuple[nn.Module, Tensor]:
        """A network in evaluation mode with norms as after training, and an input."""
        width = self.width()
        layers: list[nn.Module] = [self.conv(3, width), *self.after(width)]
        for _ in range(self.dice.randint(1, 4)):
            block, width = self.block(width)
            layers.append(block)
        layers += self.head(width)
        return stirred(nn.Sequential(*layers)).eval(), torch.randn(2, 3, self.size, self.size)

    def width(self) -> int:
        """A number of channels."""
        return self.dice.choice([4, 6, 8, 12])

    def conv(self, inputs: int, outputs: int, stride: int = 1) -> nn.Module:
        """A convolution that keeps the size of maps (but for the stride)."""
        kernel = self.dice.choice([1, 3])
        modes: tuple[Padding, ...] = ("zeros", "zeros", "zeros", "circular", "reflect")
        mode = self.dice.choice(modes)
        bias = self.dice.random() < 0.5
        return nn.Conv2d(
            inputs, outputs, kernel, stride=stride, padding=kernel // 2, padding_mode=mode, bias=bias
        )

    def after(self, width: int) -> list[nn.Module]:
        """A norm or none, an activation or none."""
        norms: list[Callable[[], nn.Module]] = [
            lambda: nn.BatchNorm2d(width),
            lambda: nn.BatchNorm2d(width),
            lambda: nn.GroupNorm(2, width),
            lambda: nn.InstanceNorm2d(width, affine=True),
            nn.Identity,
        ]
        extra = [nn.PReLU(width)] if self.dice.random() < 0.1 else []
        return [self.dice.choice(norms)(), self.dice.choice(ACTIVATIONS)(), *extra]

    def block(self, width: int) -> tuple[nn.Module, int]:
        """A block and the width it leaves."""
        kinds = [
            self.plain,
            self.residual,
            self.residual,
            self.separable,
            self.grouped,
            self.branches,
            self.squeeze,
            self.gate,
            self.pool,
            self.transposed,
        ]
        return self.dice.choice(kinds)(width)

    def plain(self, width: int) -> tuple[nn.Module, int]:
        """Convolution, norm, activation."""
        wide = self.width()
        return nn.Sequential(self.conv(width, wide), *self.after(wide)), wide

    def residual(self, width: int) -> tuple[nn.Module, int]:
        """Two convolutions beside a shortcut."""
        inner, wide = self.width(), width if self.dice.random() < 0.6 else self.width()
        body = nn.Sequential(
            self.conv(width, inner), *self.after(inner), self.conv(inner, wide), nn.BatchNorm2d(wide)
        )
        return RandomResidual(body, nn.Identity() if wide == width else nn.Conv2d(width, wide, 1)), wide

    def separable(self, width: int) -> tuple[nn.Module, int]:
        """Depthwise, then pointwise."""
        times, wide = self.dice.choice([1, 1, 2]), self.width()
        depth = nn.Conv2d(width, times * width, 3, padding=1, groups=width, bias=self.dice.random() < 0.5)
        return nn.Sequential(depth, *self.after(times * width), nn.Conv2d(times * width, wide, 1)), wide

    def grouped(self, width: int) -> tuple[nn.Module, int]:
        """A convolution in groups, with or without a shuffle."""
        wide = self.width()
        shuffle = [Shuffle(2)] if self.dice.random() < 0.4 else []
        return nn.Sequential(
            nn.Conv2d(width, wide, 3, padding=1, groups=2), *shuffle, *self.after(wide)
        ), wide

    def branches(self, width: int) -> tuple[nn.Module, int]:
        """Two convolutions side by side."""
        left, right = self.width(), self.width()
        return Branches(self.conv(width, left), self.conv(width, right)), left + right

    def squeeze(self, width: int) -> tuple[nn.Module, int]:
        """Squeeze and excitation."""
        return Squeeze(width, self.width()), width

    def gate(self, width: int) -> tuple[nn.Module, int]:
        """A gated convolution."""
        wide = self.width()
        gate = nn.GLU(1) if self.dice.random() < 0.5 else RandomGate()
        return nn.Sequential(self.conv(width, 2 * wide), gate), wide

    def pool(self, width: int) -> tuple[nn.Module, int]:
        """A pool, a resize, or a stride."""
        kinds: list[Callable[[], nn.Module]] = [
            lambda: nn.MaxPool2d(2),
            lambda: nn.AvgPool2d(2),
            lambda: nn.AvgPool2d(3, stride=1, padding=1),
            lambda: nn.Sequential(nn.Upsample(scale_factor=2), nn.AvgPool2d(2)),
            lambda: nn.Sequential(nn.ZeroPad2d(1), nn.MaxPool2d(3, stride=1)),
            lambda: nn.Dropout2d(),
        ]
        small = self.size < 4
        return (nn.Identity() if small else self.dice.choice(kinds)()), width

    def transposed(self, width: int) -> tuple[nn.Module, int]:
        """A transposed convolution, or a pixel shuffle, and back."""
        wide = self.width()
        if self.dice.random() < 0.5:
            return nn.Sequential(nn.ConvTranspose2d(width, wide, 2, stride=2), nn.MaxPool2d(2)), wide
        return nn.Sequential(self.conv(width, 4 * wide), nn.PixelShuffle(2), nn.AvgPool2d(2)), wide

    def head(self, width: int) -> list[nn.Module]:
        """Pooled or flattened, then linear layers."""
        if self.dice.random() < 0.7:
            return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), *self.linear(width)]
        return [nn.AdaptiveMaxPool2d(2), nn.Flatten(), *self.linear(4 * width)]

    def linear(self, width: int) -> list[nn.Module]:
        """One linear layer or two."""
        if self.dice.random() < 0.5:
            return [nn.Linear(width, 5)]
        inner = self.width()
        norm = nn.BatchNorm1d(inner) if self.dice.random() < 0.5 else nn.Identity()
        return [nn.Linear(width, inner), norm, self.dice.choice(ACTIVATIONS)(), nn.Linear(inner, 5)]


def stirred(model: nn.Module) -> nn.Module:
    """Norms as after training: no statistic, no scale and no shift is trivial."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
                assert module.running_mean is not None
                assert module.running_var is not None
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
            if hasattr(module, "weight") and not any(True for _ in module.children()):
                for name, parameter in module.named_parameters(recurse=False):
                    if parameter.ndim == 1:
                        parameter.normal_(1.0 if name == "weight" else 0.0, 0.3)
    return model
