"""Shrinking is exact or raises."""

import copy
import logging

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import clocks
from torchlift.deploy import channel_groups, load, plan, save, shrink, shrinkable
from torchlift.models import GPT, VGG16, LeNet5, ResNet


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def stir(model: nn.Module) -> nn.Module:
    """Norms as after training: no statistic and no shift is zero."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return model.eval()


def close_groups(model: nn.Module, example: Tensor, fraction: float = 0.5) -> nn.Module:
    """Zero the first channels of every group, norms included, as a group mask does."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for members in channel_groups(model, example).values():
            for name, dim in members.items():
                gone = torch.arange(int(fraction * parameters[name].shape[dim]))
                parameters[name].index_fill_(dim, gone, 0)
    return model


def dead_rows(model: nn.Module, layers: list[str]) -> nn.Module:
    """Zero half the rows of some layers' weights, and nothing else."""
    with torch.no_grad():
        for name in layers:
            weight = model.get_submodule(name).weight
            weight[: len(weight) // 2] = 0
    return model


@pytest.mark.parametrize("shortcut", ["projection", "pad"])
def test_a_residual_network_keeps_its_outputs(shortcut):
    model, x = stir(ResNet(8, 8, shortcut=shortcut)), torch.randn(2, 3, 16, 16)
    close_groups(model, x)
    small = shrink(model, x)
    assert_close(small(x), model(x), atol=1e-6, rtol=0)
    if shortcut == "projection":
        assert size(small) < 0.3 * size(model)
    else:
        assert size(small) < size(model)


@pytest.mark.parametrize(
    ("model", "shape"), [(VGG16(width=0.1), (2, 3, 32, 32)), (LeNet5((1, 16, 16)), (2, 1, 16, 16))]
)
def test_chains_with_pooling_and_flattening(model, shape):
    model, x = stir(model), torch.randn(shape)
    close_groups(model, x)
    small = shrink(model, x)
    assert_close(small(x), model(x), atol=1e-6, rtol=1e-6)
    assert size(small) < 0.35 * size(model)


def test_constants_fold_into_linear_layers():
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3, bias=False))
    dead_rows(stir(model), ["0"])
    x = torch.randn(4, 5)
    small = shrink(model, x)
    assert small[0].out_features == small[3].in_features == 4
    assert_close(small(x), model(x), atol=1e-6, rtol=0)
    assert bool(small[3].bias.any())  # the constant behind the norm went there


def test_constants_fold_into_unpadded_convolutions_and_stay_before_padded_ones(caplog):
    for padding, left in ((0, 4), (1, None)):
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 5, 3, padding=padding)
        )
        dead_rows(stir(model), ["0"])
        x = torch.randn(2, 3, 9, 9)
        with caplog.at_level(logging.WARNING):
            small = shrink(model, x)
        assert_close(small(x), model(x), atol=1e-6, rtol=0)
        rest = (model[:3](x)[0, :4, 0, 0] != 0).sum().item() + 4 if left is None else left
        assert small[0].out_channels == small[3].in_channels == rest
    assert rest > 4
    assert "pads with zeros" in caplog.text


class Viewed(nn.Module):
    """A network that views its maps as rows, which maps with channels last do not allow."""

    def __init__(self, flatten: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)
        self.head, self.flatten = nn.Linear(4 * 25, 2), flatten

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x).relu())
        return self.head(x.flatten(1) if self.flatten else x.view(len(x), -1))


@pytest.mark.parametrize("faster", [True, False])
@pytest.mark.parametrize("flatten", [True, False])
def test_maps_have_channels_last_where_that_is_faster_and_the_model_bears_it(flatten, faster, tmp_path):
    """Measured, not assumed; and a file keeps it."""

    def is_last(weight: Tensor) -> bool:
        return weight.is_contiguous(memory_format=torch.channels_last)

    def seconds(module: nn.Module) -> float:
        return 2.0 - (is_last(module.weight) == faster) if isinstance(module, nn.Conv2d) else 0.0

    model = Viewed(flatten)
    with torch.no_grad():
        model.first.weight[:4] = model.first.bias[:4] = 0
    x = torch.randn(2, 3, 9, 9)
    with clocks.by(seconds):
        small = shrink(model, x)
    assert small.first.out_channels == 4
    assert_close(small(x), model(x), atol=1e-6, rtol=0)
    assert is_last(small.second.weight) == (flatten and faster)
    save(small, tmp_path / "small.tlift")
    again = load(tmp_path / "small.tlift", into=Viewed(flatten))
    assert is_last(again.second.weight) == (flatten and faster)
    assert torch.equal(again.second.weight, small.second.weight)


def test_channels_nobody_reads_go_whatever_they_are():
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3, padding=1))
    with torch.no_grad():
        model[2].weight[:, 2:4] = 0
    x = torch.randn(2, 3, 9, 9)
    small = shrink(model, x)
    assert small[0].out_channels == 4
    assert_close(small(x), model(x), atol=1e-6, rtol=0)


def test_cuts_travel_backward():
    """Once a neuron is gone, what only it read is gone too."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    with torch.no_grad():
        model[2].weight[:3] = 0
        model[2].weight[3:, :4] = 0
    x = torch.randn(3, 4)
    small = shrink(model, x)
    assert (small[0].out_features, small[2].out_features) == (2, 3)
    assert_close(small(x), model(x), atol=1e-6, rtol=0)


class Concatenated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Conv2d(3, 4, 1)
        self.right = nn.Conv2d(3, 6, 3, padding=1)
        self.depthwise = nn.Conv2d(10, 10, 3, padding=1, groups=10, bias=False)
        self.norm = nn.BatchNorm2d(10)
        self.head = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        both = torch.cat([self.left(x), self.right(x)], 1)
        return self.head(self.norm(self.depthwise(both)).relu().mean((2, 3)))


def test_concatenation_and_depthwise_convolutions():
    model = stir(Concatenated())
    dead_rows(model, ["left", "right"])
    with torch.no_grad():
        model.left.bias[:2] = model.right.bias[:3] = 0
    x = torch.randn(2, 3, 8, 8)
    small = shrink(model, x)
    assert (small.left.out_channels, small.right.out_channels, small.depthwise.groups) == (2, 3, 5)
    assert_close(small(x), model(x), atol=1e-6, rtol=0)


def test_tied_and_normed_streams_go_and_what_the_output_needs_stays_with_a_reason():
    """A token model whose embedding is its output layer: features go, tokens do not."""
    model, x = GPT(20, 8, 16, 2, 2).eval(), torch.randint(20, (2, 8))
    plan_of = plan(model, x)
    name = next(group for group, members in plan_of.groups.items() if "token.weight" in str(members))
    with torch.no_grad():
        for member in plan_of.couplings[name].of("writes"):
            model.get_parameter(member.name).index_fill_(member.dim, torch.arange(5), 0)
    small = shrink(model, x)
    assert_close(small(x), model(x), atol=1e-6, rtol=0)
    embedding = next(module for module in small.modules() if isinstance(module, nn.Embedding))
    assert embedding.weight.shape == (20, 11)
    assert sum(p is embedding.weight for _, p in small.named_parameters(remove_duplicate=False)) == sum(
        p is next(m for m in model.modules() if isinstance(m, nn.Embedding)).weight
        for _, p in model.named_parameters(remove_duplicate=False)
    )
    kept = [row for row in shrinkable(small, x) if not row.cut]
    assert kept
    assert any("output" in row.why or "looked up" in row.why for row in kept)


def test_one_channel_always_stays():
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 2))
    nn.init.zeros_(model[0].weight)
    x = torch.randn(2, 3)
    small = shrink(model, x)
    assert small[0].out_features == 1
    assert_close(small(x), model(x))


def test_nothing_to_do_gives_an_equal_copy():
    model, x = stir(ResNet(8, 4)), torch.randn(1, 3, 16, 16)
    small = shrink(model, x)
    assert small is not model
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), small.parameters(), strict=True))


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
def test_optimizer_state_follows_the_kept_rows(make):
    """Training on after shrinking is training on the masked model, restricted to what is left."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8, bias=False), nn.ReLU(), nn.Linear(8, 3)).double()
    dead_rows(model, ["0"])
    optimizer = make(model.parameters(), **({"momentum": 0.9} if make is torch.optim.SGD else {}), lr=0.01)
    data = [torch.randn(16, 5).double() for _ in range(6)]

    def train(module: nn.Module, batches: list[Tensor]) -> None:
        for x in batches:
            optimizer.zero_grad()
            module(x).square().mean().backward()
            optimizer.step()

    train(model, data[:3])
    with torch.no_grad():
        model[0].weight[:4] = 0
    reference = copy.deepcopy((model, optimizer.state_dict()))
    small = shrink(model, data[0], optimizer)
    assert {id(p) for g in optimizer.param_groups for p in g["params"]} == {id(p) for p in small.parameters()}
    train(small, data[3:])
    masked = reference[0]
    optimizer = make(masked.parameters(), **({"momentum": 0.9} if make is torch.optim.SGD else {}), lr=0.01)
    optimizer.load_state_dict(reference[1])
    train(masked, data[3:])
    assert_close(small[0].weight, masked[0].weight[4:])
    assert_close(small[2].bias, masked[2].bias)


class Opaque(nn.Module):
    """Leaves torch in the middle, so that nobody knows what comes of the numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        self.second = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x: Tensor) -> Tensor:
        middle = self.first(x)
        return torch.from_numpy(self.second(torch.from_numpy(middle.detach().numpy())).detach().numpy())


def test_nothing_is_cut_where_numbers_leave_torch():
    model = dead_rows(Opaque(), ["first.0", "second.0", "first.2"])
    x = torch.randn(3, 4)
    rows = shrinkable(model, x)
    assert not any(row.cut for row in rows)
    why = {row.layer: row.why for row in rows}
    assert "numbers read off its input" in why["first.0"]
    assert "nothing that reads these channels was seen" in why["first.2"]


def test_attention_heads_go():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=40,
        image_size=8,
        patch_size=4,
    )
    model = transformers.ViTForImageClassification(config).eval()
    x = {"pixel_values": torch.randn(2, 3, 8, 8)}
    attention = next(m for m in model.modules() if type(m).__name__ == "ViTAttention")
    with torch.no_grad():
        attention.v_proj.weight[6:12] = 0
        attention.v_proj.bias.normal_()
    small = shrink(model, x)
    changed = next(m for m in small.modules() if type(m).__name__ == "ViTAttention")
    assert (changed.q_proj.out_features, changed.o_proj.in_features, changed.num_attention_heads) == (
        18,
        18,
        3,
    )
    assert_close(small(**x).logits, model(**x).logits, atol=1e-6, rtol=0)
