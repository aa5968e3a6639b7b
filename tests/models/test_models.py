from fnmatch import fnmatchcase

import pytest
import torch
from torch import Tensor, nn

from torchlift import models

IMAGE = torch.zeros(2, 3, 32, 32)
TOKENS = torch.arange(24).reshape(2, 12) % 7


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("build", "parameters"),
    [
        (lambda: models.MLP(64, 32, 10), 64 * 32 + 32 + 32 * 10 + 10),
        (lambda: models.LeNet5(), 70_346),
        (lambda: models.LeNet5(dropout=0.4, init="xavier"), 70_346),
        (lambda: models.BlockNet(1), 8_769),
        (lambda: models.BlockNet(5), 42_049),
        (lambda: models.Conv6(), 2_262_602),
        (lambda: models.resnet(20), 272_474),
        (lambda: models.ResNet(20, shortcut="pad"), 269_722),
        (lambda: models.VGG16(), 14_724_042),
        (lambda: models.wide_resnet(28, 10), 36_479_194),
        (lambda: models.wide_resnet(16, 4), 2_748_890),
        (lambda: models.GridNet(), 2 * 32 + 32 + 20 * (9 * 32 * 32 + 2 * 32) + 32 + 1),
        (lambda: models.CharLSTM(50, 8, 1), 50 * 8 + 4 * (8 * 8 + 8 * 8 + 8 + 8) + 8 * 50 + 50),
        (lambda: models.CharLSTM(50), 277_042),
        (lambda: models.GPT(50), 816_128),
        (lambda: models.wide_resnet(28, 10, dropout=0.3), 36_479_194),
        (lambda: models.resnet18(), 11_689_512),
        (lambda: models.resnet50(), 25_557_032),
        (lambda: models.wide_resnet50(2), 68_883_240),
        (lambda: models.mobilenet(), 2_236_682),
        (lambda: models.shufflenet(), 940_258),
        (lambda: models.Gan(), 1_584_836),
        (lambda: models.Translator(10_000, 8_000, 50), 15_689_024),
        (lambda: models.AwdLSTM(50, 1000), 13_113_010),
        (lambda: models.AwdLSTM(50, 300), 1_465_010),
        (lambda: models.GPT(50, 16, 8, 2, 2), 50 * 8 + 16 * 8 + 2 * (12 * 64 + 13 * 8) + 16),
    ],
)
def test_parameter_counts(build, parameters):
    with torch.device("meta"):
        assert count(build()) == parameters


SMALL = {
    "mlp": (lambda: models.MLP(5, 4, 3), torch.randn(2, 5), (2, 3)),
    "mlp on images": (lambda: models.MLP(3072, 4, 3, flatten=True), IMAGE, (2, 3)),
    "lenet": (lambda: models.LeNet5(), IMAGE, (2, 10)),
    "lenet with dropout": (
        lambda: models.LeNet5((1, 28, 28), dropout=0.4),
        torch.randn(2, 1, 28, 28),
        (2, 10),
    ),
    "blocks": (lambda: models.BlockNet(2), torch.rand(2, 5), (2, 1)),
    "conv6": (lambda: models.Conv6(), IMAGE, (2, 10)),
    "resnet": (lambda: models.ResNet(8, 4), IMAGE, (2, 10)),
    "resnet padded": (lambda: models.ResNet(8, 4, shortcut="pad"), IMAGE, (2, 10)),
    "vgg": (lambda: models.VGG16(width=0.1), IMAGE, (2, 10)),
    "wide resnet": (lambda: models.wide_resnet(10, 1), IMAGE, (2, 10)),
    "grid": (lambda: models.GridNet(2, 4), torch.rand(2, 2, 9, 9), (2, 1, 9, 9)),
    "lstm": (lambda: models.CharLSTM(7, 8), TOKENS, (2, 12, 7)),
    "tied lstm": (lambda: models.CharLSTM(7, 8, tie=True), TOKENS, (2, 12, 7)),
    "gpt": (lambda: models.GPT(7, 12, 8, 2, 2), TOKENS, (2, 12, 7)),
}


@pytest.mark.parametrize("name", SMALL)
def test_every_parameter_learns(name):
    build, x, shape = SMALL[name]
    model = build()
    out = model(x)
    assert out.shape == shape
    out.square().mean().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.filterwarnings("ignore:The tensor attributes self.lstm._flat_weights")  # torch's own list
@pytest.mark.parametrize("name", SMALL)
def test_export_computes_the_same(name):
    build, x, _ = SMALL[name]
    model = build().eval()
    exported = torch.export.export(model, (x,))
    torch.testing.assert_close(exported.module()(x), model(x))


@pytest.mark.parametrize("kind", [models.CharLSTM, models.GPT])
def test_text_models_do_not_see_the_future(kind):
    model = kind(7, width=8).eval()
    changed = TOKENS.clone()
    changed[:, 6:] = 0
    torch.testing.assert_close(model(changed)[:, :6], model(TOKENS)[:, :6])


@pytest.mark.parametrize("kind", [models.CharLSTM, models.GPT])
def test_tied_heads_share_one_parameter(kind):
    tied, free = kind(50, width=8, tie=True), kind(50, width=8, tie=False)
    assert count(free) - count(tied) == 50 * 8


def test_attention_equals_the_formula():
    layer = models.GPT(7, 12, 8, 1, 2).double().blocks[0].attention
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    q, k, v = (projection.unflatten(-1, (2, 4)).transpose(1, 2) for projection in layer.qkv(x).chunk(3, -1))
    scores = q @ k.transpose(-1, -2) / 2 + torch.full((5, 5), -torch.inf).triu(1)
    expected = layer.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(3, 5, 8))
    torch.testing.assert_close(layer(x), expected)


def test_block_is_the_identity_on_nonnegative_input_when_its_last_layer_is_zero():
    block = models.Block(4)
    nn.init.zeros_(block.linear2.weight)
    nn.init.zeros_(block.linear2.bias)
    x = torch.rand(3, 4)
    assert torch.equal(block(x), x)


def test_pad_shortcut_keeps_the_input_in_the_middle_channels():
    x = torch.randn(1, 2, 4, 4)
    out: Tensor = models.residual.Pad(2, 4)(x)
    assert torch.equal(out[:, 1:3], x[:, :, ::2, ::2])
    assert not out[:, [0, 3]].any()


def test_slices_of_an_mlp_are_plain_sequences():
    model = models.MLP(5, 4, 3)
    trunk = model[:-1]
    x = torch.randn(2, 5)
    assert type(trunk) is nn.Sequential
    assert torch.equal(model[-1](trunk(x)), model(x))


def test_initial_scale():
    torch.manual_seed(0)
    for scheme, std in (("kaiming", (2 / 400) ** 0.5), ("xavier", (2 / 1000) ** 0.5)):
        layer = nn.Linear(400, 600)
        models.initialize(layer, scheme)
        assert layer.weight.std().item() == pytest.approx(std, rel=0.01)
        assert not layer.bias.any()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: models.MLP(3), "at least two sizes"),
        (lambda: models.resnet(21), "6n \\+ 2"),
        (lambda: models.wide_resnet(27, 1), "6n \\+ 4"),
        (lambda: models.GPT(5, width=10, heads=4), "multiple of heads"),
        (lambda: models.BlockNet(1, init="he"), 'use "torch", "xavier" or "kaiming"'),
    ],
)
def test_bad_arguments_raise(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(("templates", "millions"), [(1, 12), (2, 17), (6, 36)])
def test_shared_wide_resnets_have_the_sizes_of_the_thesis(templates, millions):
    """Table 3.1: SWRN-28-10-k; six convolutions a stage share k templates, by six rows of k coefficients."""
    with torch.device("meta"):
        model = models.swrn(28, 10)
    weights = dict(model.named_parameters())
    groups = {stage: [n for n in weights if fnmatchcase(n, glob)] for stage, (glob,) in models.SHARED.items()}
    assert {stage: len(names) for stage, names in groups.items()} == {"stage1": 6, "stage2": 6, "stage3": 6}
    saved = sum((6 - templates) * weights[names[0]].numel() - 6 * templates for names in groups.values())
    assert round((count(model) - saved) / 1e6) == millions
