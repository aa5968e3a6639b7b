"""Odd but legal models: eight features in, three classes out. ``ODD[name]()`` builds one."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as f
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

ODD: dict[str, Callable[[], nn.Module]] = {}
STEPS = 4  # of a sequence, two features each


def odd(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """Register a model under the name of its function or class."""

    def quiet() -> nn.Module:
        with warnings.catch_warnings():  # old weight norms are deprecated, empty layers have nothing to draw
            warnings.simplefilter("ignore")
            return build()

    ODD[build.__name__] = quiet
    return build


def perceptron(*between: nn.Module, width: int = 8) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, width), *between, nn.ReLU(), nn.Linear(width, 3))


class Two(nn.Module):
    """Two layers of width eight and an output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(f.relu(self.b(f.relu(self.a(x)))))


@odd
class Tied(Two):
    def __init__(self) -> None:
        super().__init__()
        self.b.weight = self.a.weight


@odd
class TiedTransposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.out = nn.Linear(8, 16), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(f.linear(f.relu(self.a(x)), self.a.weight.t()))


@odd
class CalledThreeTimes(Two):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = f.relu(self.a(x))
        return self.out(f.relu(self.b(x)))


@odd
def listed_twice() -> nn.Module:
    layer, act = nn.Linear(8, 8), nn.ReLU()
    return nn.Sequential(layer, act, layer, act, nn.Linear(8, 3))


@odd
def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    model[0].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


@odd
def frozen_layers() -> nn.Module:
    model = nn.Sequential(
        *(module for _ in range(3) for module in (nn.Linear(8, 8), nn.ReLU())), nn.Linear(8, 3)
    )
    for layer in (model[0], model[2]):
        layer.requires_grad_(False)
    return model


@odd
def strided_weights() -> nn.Module:
    model = perceptron()
    model[0].weight = nn.Parameter(torch.randn(8, 8).t())
    model[2].weight = nn.Parameter(torch.randn(8, 6).t()[::2])
    return model


@odd
class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.3 * torch.randn(8, 8, dtype=torch.cfloat))
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out((x.to(torch.cfloat) @ self.weight).abs())


@odd
def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(3))


def shift(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return output * 2 + 1


def halve(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    return (inputs[0] * 0.5,)


@odd
def hooked() -> nn.Module:
    model = perceptron()
    model[0].register_forward_hook(shift)
    model[2].register_forward_pre_hook(halve)
    return model


@odd
def old_weight_norm() -> nn.Module:
    return nn.Sequential(nn.utils.weight_norm(nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 3))


@odd
def weight_norm() -> nn.Module:
    return nn.Sequential(parametrizations.weight_norm(nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 3))


@odd
def spectral_norm() -> nn.Module:
    return nn.Sequential(parametrizations.spectral_norm(nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 3))


@odd
def orthogonal() -> nn.Module:
    return nn.Sequential(parametrizations.orthogonal(nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 3))


@odd
class Containers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        several = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.layers = nn.ModuleDict({"a b": nn.Linear(8, 8), "several": several})
        self.shifts = nn.ParameterList([torch.randn(8)])
        self.heads = nn.ParameterDict({"out": 0.3 * torch.randn(8, 3)})

    def forward(self, x: Tensor) -> Tensor:
        x = f.relu(self.layers["a b"](x) + self.shifts[0])
        for layer in self.layers["several"]:
            x = x + f.relu(layer(x))
        return x @ self.heads["out"]


@odd
class InPlace(Two):
    def forward(self, x: Tensor) -> Tensor:
        h = f.relu_(self.a(x))
        g = self.b(h)
        g += h
        return self.out(g.clamp_(-5, 5))


@odd
def dropouts() -> nn.Module:
    return perceptron(nn.Dropout(0.5), nn.Linear(16, 16), nn.AlphaDropout(0.2), width=16)


class Sequences(nn.Module):
    """Eight features as a sequence of four pairs."""

    def pairs(self, x: Tensor) -> Tensor:
        return x.view(-1, STEPS, 2)


@odd
class BidirectionalGRU(Sequences):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(2, 6, 2, batch_first=True, bidirectional=True, dropout=0.1)
        self.out = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.rnn(self.pairs(x))[0][:, -1])


@odd
class ProjectedLSTM(Sequences):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.out = nn.LSTM(2, 6, batch_first=True, proj_size=4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.rnn(self.pairs(x))[0].mean(1))


@odd
class LSTMCells(Sequences):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.LSTMCell(2, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = cell = x.new_zeros(len(x), 6)
        for pair in self.pairs(x).unbind(1):
            hidden, cell = self.cell(pair, (hidden, cell))
        return self.out(hidden)


@odd
class Encoder(Sequences):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.enter, self.encoder, self.out = nn.Linear(2, 8), nn.TransformerEncoder(layer, 2), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(STEPS)
        return self.out(self.encoder(self.enter(self.pairs(x)), mask=mask)[:, -1])


@odd
class MaskedAttention(Sequences):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.norm, self.out = nn.Linear(2, 8), nn.LayerNorm(8), nn.Linear(8, 3)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True)

    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(self.pairs(x))
        padding = torch.zeros(len(x), STEPS, dtype=torch.bool)
        padding[:, 0] = True
        return self.out(self.norm(h + self.attend(h, h, h, key_padding_mask=padding)[0]).mean(1))


@odd
def without_biases() -> nn.Module:
    layers = [nn.Linear(8, 8, bias=False), nn.ReLU(), nn.Linear(8, 8, bias=False), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(8, 3, bias=False))


@odd
def one_unit() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 1), nn.ReLU(), nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 3))


@odd
class ZeroSize(Two):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 0)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([self.a(x), f.relu(self.b(x))], 1))


@odd
def double() -> nn.Module:
    return perceptron().double()


@odd
def bfloat16() -> nn.Module:
    return perceptron(width=16).bfloat16()


@odd
def half() -> nn.Module:
    return perceptron(width=16).half()


@odd
class MixedDtypes(Two):
    def __init__(self) -> None:
        super().__init__()
        self.b.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.b(f.relu(self.a(x)).double()).float().relu())


@odd
def odd_batch_norms() -> nn.Module:
    plain = nn.BatchNorm1d(8, track_running_stats=False, affine=False)
    between = [nn.BatchNorm1d(8, momentum=None), nn.ReLU(), nn.Linear(8, 8), plain]
    return perceptron(*between)


@odd
class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.out = nn.Linear(8, 8), nn.Linear(8, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(8), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return self.out(f.relu(self.a(x - self.mean)))


@odd
class BareParameters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(0.3 * torch.randn(8, 8))
        self.second = nn.Parameter(0.3 * torch.randn(3, 8))
        self.gain = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        return f.linear(f.gelu(x @ self.first) * self.gain, self.second)


@odd
class Noisy(Two):
    def forward(self, x: Tensor) -> Tensor:
        h = f.relu(self.b(f.relu(self.a(x))))
        return self.out(h + 0.1 * torch.randn_like(h) if self.training else h)


@odd
class ReadsItsWeights(Two):
    def forward(self, x: Tensor) -> Tensor:
        h = f.relu(self.a(x)) * torch.sigmoid(self.b.weight.sum())
        return self.out(f.relu(self.b(h)) + self.a.weight.mean(1))


@odd
def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 4)),
        nn.Conv2d(1, 4, 3, padding=1, padding_mode="circular"),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False),
        nn.ReLU(),
        nn.Conv2d(4, 8, 1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 2, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 4 * 8, 3),
    )


@odd
class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.out = (
            nn.Linear(8, 6),
            nn.Linear(14, 6),
            nn.Linear(20, 8),
            nn.Linear(4, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.a, self.b):
            x = torch.cat([x, f.relu(layer(x))], 1)
        value, gate = self.c(x).chunk(2, 1)
        return self.out(value * torch.sigmoid(gate))


@odd
class Checkpointed(Two):
    def forward(self, x: Tensor) -> Tensor:
        def second(h: Tensor) -> Tensor:
            return f.relu(self.b(h))

        return self.out(checkpoint(second, f.relu(self.a(x)), use_reentrant=False))


@odd
class BareTensor(Two):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.options = torch.linspace(0.5, 1.5, 8), {"scale": 2.0}

    def forward(self, x: Tensor) -> Tensor:
        return self.out(f.relu(self.a(x)) * self.table * self.options["scale"])


@odd
def deep() -> nn.Module:
    return nn.Sequential(
        *(module for _ in range(12) for module in (nn.Linear(8, 8), nn.ReLU())), nn.Linear(8, 3)
    )


@odd
class Branching(Two):
    def forward(self, x: Tensor) -> Tensor:
        h = f.relu(self.a(x))
        return self.out(torch.where(h.sum(1, keepdim=True) > 1, h, f.relu(self.b(h))))


@odd
def norms() -> nn.Module:
    between = [nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 8), nn.RMSNorm(8), nn.SiLU(), nn.Linear(8, 8)]
    return perceptron(*between, nn.GroupNorm(2, 8))


@odd
class Unused(Two):
    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(5, 5)
        self.register_parameter("nothing", None)


@odd
def dead_at_first() -> nn.Module:
    model = perceptron()
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.fill_(-1)
    return model


@odd
class RefersToItself(Two):
    def __init__(self) -> None:
        super().__init__()
        self.me, self.last = [self], None

    def forward(self, x: Tensor) -> Tensor:
        self.last = f.relu(self.a(x))
        return self.me[0].out(f.relu(self.b(self.last)))


def data(model: nn.Module, seed: int = 1, n: int = 48) -> tuple[Tensor, Tensor]:
    """Samples of the model's number type."""
    x = torch.randn(n, 8, generator=torch.Generator().manual_seed(seed))
    first = next((p for p in model.parameters() if p.is_floating_point() and not is_lazy(p)), x)
    return x.to(first.dtype), (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def is_lazy(parameter: Any) -> bool:
    return isinstance(parameter, nn.parameter.UninitializedParameter)
