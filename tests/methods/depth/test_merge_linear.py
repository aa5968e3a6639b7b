"""Layers that act linearly on the data are merged; the others are named, with the reason."""

import logging

import pytest
import torch
from torch import Tensor, nn

from torchlift.core import Task
from torchlift.lifts import CriticalLayer, merge_linear, merging
from torchlift.models import MLP, resnet


class Block(nn.Module):
    """x + relu(bn(layer(x)))."""

    def __init__(self, layer: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.layer, self.norm, self.bend = layer, norm, nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bend(self.norm(self.layer(x)))


class TwoLayers(nn.Module):
    """x + W₂ relu(W₁ x)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.bend, self.down = nn.Linear(width, 3 * width), nn.ReLU(), nn.Linear(3 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.bend(self.up(x)))


def lift_off(layer: nn.Module, after: nn.Module | None = None, by: float = 30.0) -> None:
    """Move a layer's outputs to where a ReLU is the identity; the next layer takes it back."""
    with torch.no_grad():
        layer.bias.add_(by)
        if after is not None:
            after.bias.sub_(by * after.weight.sum(1))


def layers(model: nn.Module) -> int:
    return sum(isinstance(module, nn.Linear | nn.Conv2d) for module in model.modules())


def test_what_critical_lifting_inserts_is_merged_again() -> None:
    task = Task(MLP(5, 8, 6, 3), "mse")
    x = torch.randn(200, 5)
    model = CriticalLayer("linear[12]", x).lift(task).model
    done = merging(model, x, held_out=torch.randn(50, 5) * 0.5)
    assert done.depth == (4, 2)
    assert set(done.merged) >= {"linear1.inner", "linear2.inner"}
    torch.testing.assert_close(done.model(x), task.model(x), rtol=0, atol=1e-6)
    assert done.error < 1e-5
    assert [type(module) for module in done.model.children()] == [
        type(module) for module in task.model.children()
    ]


def test_a_linear_layer_goes_and_the_rest_is_untouched() -> None:
    model, x = MLP(5, 8, 8, 8, 3), torch.randn(200, 5)
    lift_off(model.linear2, model.linear3)
    small = merge_linear(model, x)
    assert list(dict(small.named_children())) == ["linear1", "activation1", "linear3", "activation3", "head"]
    torch.testing.assert_close(small(x), model(x), rtol=0, atol=1e-5)
    assert torch.equal(small.linear1.weight, model.linear1.weight)
    assert layers(model) == 4, "the given model is left alone"


def test_one_neuron_that_bends_keeps_the_layer_and_is_named() -> None:
    model, x = MLP(5, 8, 8, 3), torch.randn(200, 5)
    lift_off(model.linear2)
    with torch.no_grad():
        model.linear2.bias[3] -= 30.0
    done = merging(model, x)
    assert done.merged == ()
    assert done.kept["linear2"].startswith("neuron 3 bends")
    assert done.error == 0


def test_below_the_threshold_the_error_is_reported() -> None:
    model, x = MLP(5, 8, 8, 3), torch.randn(200, 5)
    lift_off(model.linear2)
    with torch.no_grad():
        model.linear2.bias[3] -= 30.0
    held_out = torch.randn(100, 5)
    done = merging(model, x, threshold=0.0, held_out=held_out)
    off = (done.model(held_out) - model(held_out)).detach()
    assert set(done.merged) == {"linear1", "linear2"}
    assert done.largest == pytest.approx(float(off.abs().max()))
    assert done.error == pytest.approx(float(off.norm() / model(held_out).detach().norm()), rel=1e-5)
    assert done.error > 1e-3


def test_fits_are_least_squares() -> None:
    """The line of a merged tanh is the one scikit-learn, or a pencil, would draw."""
    model, x = MLP(1, 1, 1, activation=nn.Tanh).double(), torch.randn(50, 1, dtype=torch.float64)
    done = merging(model, x, threshold=0.0)
    z = model.linear1(x).detach()
    line = torch.linalg.lstsq(torch.cat([z, torch.ones_like(z)], 1), z.tanh()).solution
    want = model.head(line[0] * z + line[1])
    torch.testing.assert_close(done.model(x), want, rtol=0, atol=1e-12)


def test_dead_neurons_are_lines_too() -> None:
    model, x = MLP(5, 8, 8, 3), torch.randn(200, 5)
    lift_off(model.linear2)
    with torch.no_grad():
        model.linear2.bias[2] = -100.0
    done = merging(model, x)
    assert done.merged == ("linear2",)
    torch.testing.assert_close(done.model(x), model(x), rtol=0, atol=1e-5)


def test_a_number_of_layers_takes_the_most_linear_first() -> None:
    model, x = MLP(5, 8, 8, 8, 8, 3, activation=nn.Tanh), torch.randn(300, 5)
    with torch.no_grad():
        for name in ("linear1", "linear2", "linear4"):
            model.get_submodule(name).weight.mul_(4)
        model.linear3.weight.mul_(0.02)
        model.linear4.weight.mul_(50)
    done = merging(model, x, layers=3)
    assert done.merged == ("linear3",)
    assert done.depth == (4, 3)
    assert merging(model, x, layers=1).depth == (4, 1)


def test_convolutions_norms_and_strides() -> None:
    first = [nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU()]
    model = nn.Sequential(
        *first, nn.Conv2d(6, 4, 1, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)
    ).eval()
    with torch.no_grad():
        model[1].running_mean.normal_()
        model[1].running_var.uniform_(0.5, 2)
    lift_off(model[1])
    x = torch.randn(30, 3, 8, 8)
    done = merging(model, x)
    assert done.merged == ("0",)
    merged = done.model.get_submodule("3")
    assert (merged.kernel_size, merged.stride, merged.padding) == ((3, 3), (2, 2), (1, 1))
    torch.testing.assert_close(done.model(x), model(x), rtol=0, atol=1e-3)
    assert "Flatten" in done.kept["3"] or "flatten" in done.kept["3"]


@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_residual_blocks_become_one_layer(kind: str) -> None:
    if kind == "linear":
        block, x = Block(nn.Linear(6, 6), nn.Identity()), torch.randn(100, 5)
        model = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), block, nn.Linear(6, 3))
        lift_off(block.layer)
    else:
        block, x = Block(nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6)), torch.randn(30, 3, 8, 8)
        model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), block, nn.Conv2d(6, 3, 1)).eval()
        lift_off(block.norm)
    small = merge_linear(model, x)
    assert layers(small) == 2
    torch.testing.assert_close(small(x), model(x), rtol=0, atol=1e-4)


def test_residual_blocks_of_two_layers() -> None:
    model = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), TwoLayers(6), nn.Linear(6, 3))
    lift_off(model[2].up)
    x = torch.randn(100, 5)
    small = merge_linear(model, x)
    assert layers(small) == 2
    torch.testing.assert_close(small(x), model(x), rtol=0, atol=1e-4)


def test_what_cannot_be_merged_is_said() -> None:
    shared = nn.Linear(6, 6)
    x = torch.randn(20, 6)
    cases = {
        "is used 2 times": nn.Sequential(shared, nn.ReLU(), shared, nn.ReLU(), nn.Linear(6, 1)),
        "layer_norm comes between": nn.Sequential(
            nn.Linear(6, 6), nn.ReLU(), nn.LayerNorm(6), nn.Linear(6, 1)
        ),
        "the model's output": nn.Sequential(nn.Linear(6, 6), nn.ReLU()),
        "times the multiplications": nn.Sequential(nn.Linear(6, 1), nn.ReLU(), nn.Linear(1, 6)),
    }
    for reason, model in cases.items():
        done = merging(model, x, threshold=0.0)
        assert any(reason in why for why in done.kept.values()), (reason, done.kept)
        assert done.error == 0
    grown = merging(cases["times the multiplications"], x, threshold=0.0, grow=True)
    assert layers(grown.model) == 1


def test_padding_between_convolutions_raises() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
    done = merging(model, torch.randn(4, 3, 8, 8), threshold=0.0, grow=True)
    assert "border" in done.kept["0"]


def test_someone_else_who_reads_between_is_found_out() -> None:
    class Peeks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.bend, self.two = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.two(self.bend(self.one(x))) * self.one.weight.sum()

    with pytest.raises(AttributeError):
        nn.Identity().weight
    done = merging(Peeks(), torch.randn(20, 4), threshold=0.0)
    assert "needs the module" in done.kept["one"]


def test_an_activation_that_a_forward_calls_is_named() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(torch.relu(self.first(x)))

    model = Functional()
    lift_off(model.first)
    done = merging(model, torch.randn(20, 4))
    assert not done.merged
    assert "relu is called inside Functional.forward" in done.kept["first"]


def test_resnet20_says_why_nothing_merges(caplog: pytest.LogCaptureFixture) -> None:
    model, x = resnet(20), torch.randn(4, 3, 32, 32)
    with caplog.at_level(logging.WARNING, "torchlift"):
        small = merge_linear(model, x)
    assert layers(small) == layers(model)
    assert caplog.text.count("the next convolution pads what it gets") == 9
    assert caplog.text.count("relu: it bends what is not a layer's own output") == 9
    assert caplog.text.count("kept") == 19


def test_vit_merges_the_halves_of_an_mlp_that_act_linearly() -> None:
    from cases import vit

    model, (x, _) = vit()
    model.eval()
    lift_off(model.vit.layers[0].mlp.fc1)
    with torch.no_grad():
        model.vit.layers[1].mlp.fc1.weight.mul_(20)
    done = merging(model, x)
    assert done.merged == ("vit.layers.0.mlp.fc1",)
    assert "bends" in done.kept["vit.layers.1.mlp.fc1"]
    torch.testing.assert_close(done.model(x).logits, model(x).logits, rtol=0, atol=1e-4)


def test_mobilenet_says_why() -> None:
    from cases import mobilenet

    model, (x, _) = mobilenet()
    done = merging(model, x)
    assert done.merged == ()
    reasons = " ".join(done.kept.values())
    assert "groups=" in reasons
    assert "padding comes between" in reasons
    assert len(done.kept) == done.depth[0]
