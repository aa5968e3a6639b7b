"""What a model's call looks like from outside: layers, activations, sums, and who takes what."""

import weakref
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from torchlift.flow.activity import moments
from torchlift.flow.affine import Moments, composed_weight, through
from torchlift.flow.trace import flow


class Functional(nn.Module):
    """Everything a module can do without modules."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.one(x)
        h = functional.relu_(h)
        h += x
        return self.two(functional.dropout(h, 0.5, self.training)).tanh()


def kinds(model: nn.Module, x: Tensor) -> list[tuple[str, str]]:
    return [(op.kind, op.name) for op in flow(model, x).ops]


def test_modules_in_a_row() -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Dropout(), nn.Conv2d(3, 1, 1)
    )
    shape = flow(model, torch.randn(4, 2, 5, 5))
    assert [(op.kind, op.name) for op in shape.ops] == [
        ("layer", "0"), ("norm", "1"), ("activation", "2"), ("layer", "4"),
    ]  # fmt: skip
    assert shape.of("activation")[0].layer == "0"
    assert shape.next(shape.ops[2]) == shape.ops[3]
    assert shape.next(shape.ops[3]) == "the model's output"


def test_functions_and_changes_in_place_are_seen() -> None:
    shape = flow(Functional(), torch.randn(2, 3))
    assert [op.kind for op in shape.ops] == ["layer", "activation", "add", "layer", "activation"]
    assert [op.function for op in shape.of("activation")] == ["relu", "tanh"]
    bend, plus = shape.ops[1], shape.ops[2]
    assert set(plus.inputs) == {bend.output, shape.ops[0].inputs[0]}, "the sum takes the bent value and x"


def test_looking_changes_nothing() -> None:
    model = Functional().train()
    before = [hook for module in model.modules() for hook in module._forward_hooks]
    flow(model, torch.randn(2, 3))
    assert all(module.training for module in model.modules())
    assert [hook for module in model.modules() for hook in module._forward_hooks] == before


def test_an_activation_in_place_shows_its_input() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 1))
    x = torch.randn(50, 3)
    seen = moments(model, x)["0"]
    torch.testing.assert_close(seen.x, model[0](x).double().mean(0).detach())
    torch.testing.assert_close(seen.y, model[0](x).relu().double().mean(0).detach())


@pytest.mark.parametrize(
    "bend", [torch.tanh_, functional.elu_, functional.leaky_relu_, functional.relu6, Tensor.relu_]
)
def test_every_spelling_of_an_activation(bend: Callable[[Tensor], Tensor]) -> None:
    class Bent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            return bend(self.layer(x))

    model, x = Bent(), torch.randn(20, 3)
    torch.testing.assert_close(moments(model, x)["layer"].y, model(x).detach().double().mean(0))


@given(st.integers(0, 2**31), st.lists(st.integers(1, 7), min_size=1, max_size=6))
def test_moments_do_not_depend_on_the_pieces(seed: int, sizes: list[int]) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(sum(sizes), 3, generator=generator) * 10 + 100
    y = x.square() + torch.randn(sum(sizes), 3, generator=generator)
    pieces = [Moments.of(a, b) for a, b in zip(x.split(sizes), y.split(sizes), strict=True)]
    whole, summed = Moments.of(x, y), pieces[0]
    for piece in pieces[1:]:
        summed = summed + piece
    for name in ("x", "y", "xx", "yy", "xy", "low", "high"):
        torch.testing.assert_close(getattr(summed, name), getattr(whole, name), rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize(
    ("k1", "s1", "p1", "k2", "s2"), [(3, 1, 1, 1, 1), (3, 2, 1, 3, 1), (1, 1, 0, 3, 2), (2, 3, 0, 2, 1)]
)
def test_two_convolutions_are_one(k1: int, s1: int, p1: int, k2: int, s2: int) -> None:
    x = torch.randn(2, 3, 17, 17, dtype=torch.float64)
    w1, w2 = torch.randn(4, 3, k1, k1).double(), torch.randn(5, 4, k2, k2).double()
    b1, b2 = torch.randn(4).double(), torch.randn(5).double()
    two = functional.conv2d(functional.conv2d(x, w1, b1, s1, p1), w2, b2, s2)
    one = functional.conv2d(x, composed_weight(w2, w1, s1), through(w2, b1) + b2, s1 * s2, p1)
    torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-10)


def test_watching_keeps_no_tensor_alive() -> None:
    """A pass over many inputs costs the memory of a pass: what the model drops is gone."""
    seen: list[weakref.ref[Tensor]] = []

    class Spy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            assert not any(ref() is not None for ref in seen[:-1]), "an earlier value is still held"
            seen.append(weakref.ref(x))
            return x

    layers = [layer for _ in range(4) for layer in (nn.Linear(3, 3), Spy(), nn.Tanh())]
    model = nn.Sequential(*layers)
    assert [op.kind for op in flow(model, torch.randn(2, 3)).ops] == ["layer", "activation"] * 4
