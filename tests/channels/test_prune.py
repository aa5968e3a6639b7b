"""Channels chosen without training."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import clocks
from torchlift.deploy import mask_weights, measure, prune
from torchlift.errors import SelectionError, TorchliftError
from torchlift.models import ResNet


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.fixture
def resnet():
    torch.manual_seed(0)
    return ResNet(8, 8).eval(), torch.randn(2, 3, 16, 16)


def test_the_smallest_channels_go():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)).eval()
    with torch.no_grad():
        model[0].weight.mul_(torch.tensor([3.0, 0.1, 2, 0.2, 1, 0.3])[:, None])
        model[0].bias.zero_()
    want = model[0].weight[[0, 2, 4]].clone()
    assert_close(prune(model, torch.randn(2, 4), 0.5)[0].weight, want)


def test_ratios_by_layer_and_layers_to_skip(resnet):
    model, x = resnet
    some = prune(model, x, {"*conv1*": 0.5}, skip="stage2*")
    before, after = dict(model.named_modules()), dict(some.named_modules())
    for name in ("stage1.0.conv1", "stage2.0.conv1"):
        cut = before[name].out_channels - after[name].out_channels
        assert (cut > 0) == name.startswith("stage1"), name
    with pytest.raises(SelectionError, match="matches nothing"):
        prune(model, x, {"no such layer": 0.5})


@pytest.mark.parametrize(("share", "scope"), [(0.3, "global"), (0.6, "local")])
def test_targets_are_those_of_the_shrunken_model(resnet, share, scope):
    model, x = resnet
    target = share * size(model)
    assert size(prune(model, x, parameters=target, scope=scope)) == pytest.approx(target, rel=0.02)
    macs = share * measure(model, x, repeats=1).macs
    small = prune(model, x, macs=macs, scope=scope)
    assert measure(small, x, repeats=1).macs == pytest.approx(macs, rel=0.02)


def test_the_nearest_is_said_where_whole_channels_are_too_coarse():
    net = nn.Sequential(nn.Linear(768, 3), nn.ReLU(), nn.Linear(3, 4))
    with pytest.warns(UserWarning, match="nearest that whole channels allow is 1550"):
        small = prune(net, torch.randn(2, 768), parameters=1700)
    assert size(small) == 1550  # of 777, 1550 and 2323


def test_widths_are_multiples(resnet):
    model, x = resnet
    small = prune(model, x, 0.3, round_to=4)
    widths = {m.out_channels for m in small.modules() if isinstance(m, nn.Conv2d)}
    assert all(width % 4 == 0 for width in widths)
    assert size(small) < size(model)


@pytest.mark.parametrize("liked", [1, 8, 16])
def test_widths_are_those_that_run_fastest(liked, caplog):
    """53 of 76 channels are left, 56 in multiples of 8, 48 of 16; timed, not assumed."""
    widths = {1: 53, 8: 56, 16: 48}
    model = nn.Sequential(nn.Linear(4, 76), nn.ReLU(), nn.Linear(76, 2)).eval()

    def seconds(module: nn.Module) -> float:
        return 2.0 - (module[0].out_features == widths[liked]) if isinstance(module, nn.Sequential) else 0.0

    with clocks.by(seconds), caplog.at_level("INFO"):
        small = prune(model, torch.randn(2, 4), 0.3)
    assert small[0].out_features == widths[liked]
    assert f"round_to={liked}: {1.0 if liked == 1 else 0.5:.2f} of the time (taken)" in caplog.text


def test_what_stays_is_said_in_a_line_for_each_reason(caplog):
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.first(x).softmax(-1))

    prune(Mixed().eval(), torch.randn(2, 4), 0.5)
    assert [record.message for record in caplog.records] == ["first stay: softmax mixes the channels"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ratio": 1.0}, r"\[0, 1\)"),
        ({"criterion": "taylor"}, "needs loss="),
        ({"criterion": "psychic"}, "not known"),
        ({"scope": "cosmic"}, "'local' or 'global'"),
        ({"parameters": 1.0}, "out of reach"),
    ],
)
def test_bad_arguments_raise(resnet, options, says):
    model, x = resnet
    with pytest.raises(TorchliftError, match=says):
        prune(model, x, **options)


def test_layer_norms_forget_on_request_only(caplog):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True)
    model = nn.Sequential(nn.Linear(5, 16), layer, nn.Linear(16, 3)).eval()
    x = torch.randn(2, 6, 5)
    loose = prune(model, x, 0.5, exact=False)
    assert "inexact by request" in caplog.text
    assert isinstance(loose[1].norm1, nn.LayerNorm)
    assert type(prune(model, x, 0.5)[1].norm1).__name__ == "CountedLayerNorm"
    assert loose(x).shape == model(x).shape


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


@pytest.mark.parametrize("criterion", ["magnitude", "lamp", "random"])
def test_weights_are_dropped_one_by_one(criterion):
    model = linear()
    sparse = mask_weights(model, 0.75, criterion=criterion)
    weights = [sparse[0].weight, sparse[2].weight]
    assert sum(int((w == 0).sum()) for w in weights) == round(0.75 * (8 * 16 + 16 * 4))
    kept = sparse[0].weight != 0
    assert torch.equal(sparse[0].weight[kept], model[0].weight[kept])


def test_two_of_four_weights_and_masks_of_ones_own():
    model = linear()
    pairs = mask_weights(model, pattern=(2, 4))
    assert bool(((pairs[0].weight != 0).view(16, 2, 4).sum(-1) == 2).all())
    keep = torch.rand(16, 8) < 0.5
    own = mask_weights(model, masks={"0.weight": keep})
    assert torch.equal(own[0].weight != 0, keep)
    assert torch.equal(own[2].weight, model[2].weight)
    with pytest.raises(TorchliftError, match="shape"):
        mask_weights(model, masks={"0.weight": keep.t()})
    with pytest.raises(TorchliftError, match="matches nothing"):
        mask_weights(model, masks={"9.weight": keep})
