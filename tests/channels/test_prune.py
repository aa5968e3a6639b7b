"""Channels chosen without training."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from torchlift.channels import prune as pruning
from torchlift.channels import scores as criteria
from torchlift.channels.cuts import masked_copy
from torchlift.channels.scores import PruningChoice, chosen_channels, scores_of
from torchlift.deploy import mask_weights, plan, prune
from torchlift.deploy.measuring import count_macs
from torchlift.errors import SelectionError, TorchliftError
from torchlift.models import ResNet


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_magnitude_is_the_squared_norm_of_slices():
    weight = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert criteria.magnitude(weight, 0).tolist() == [5.0, 25.0]
    assert criteria.magnitude(weight, 1).tolist() == [10.0, 20.0]


def test_taylor_is_the_first_order_change_of_the_loss():
    """Of a loss that is linear in the weights, zeroing a slice changes it by exactly that."""
    weight, slope = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    for row in range(3):
        zeroed = weight.clone()
        zeroed[row] = 0
        change = (slope * weight).sum() - (slope * zeroed).sum()
        assert criteria.taylor(weight, slope, 0)[row].item() == pytest.approx(change.item() ** 2)


def test_lamp_by_its_definition():
    weight = torch.tensor([3.0, -1.0, 2.0])
    want = [9 / 9, 1 / (1 + 4 + 9), 4 / (4 + 9)]
    assert criteria.lamp(weight).tolist() == pytest.approx(want)


def test_two_of_four_keeps_the_two_largest_of_every_four():
    scores = torch.tensor([[1.0, 5, 2, 4, 0, 0.1, 9, 8]])
    assert criteria.n_of_m(scores, 2, 4).tolist() == [[False, True, False, True, False, False, True, True]]
    with pytest.raises(TorchliftError, match="2 of 4"):
        criteria.n_of_m(torch.ones(2, 6), 2, 4)


@pytest.fixture
def resnet():
    torch.manual_seed(0)
    return ResNet(8, 8).eval(), torch.randn(2, 3, 16, 16)


@pytest.mark.parametrize("criterion", ["magnitude", "norm", "random", "taylor"])
@pytest.mark.parametrize("scope", ["local", "global"])
def test_half_of_the_channels_go_and_the_rest_computes_what_the_masked_model_does(resnet, criterion, scope):
    model, x = resnet
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)

    def loss(m: nn.Module) -> torch.Tensor:
        return m(x).square().sum()

    small = prune(model, x, 0.5, criterion=criterion, scope=scope, loss=loss, round_to=1)
    choice = PruningChoice(ratio=0.5, criterion=criterion, scope=scope, loss=loss)
    free = list(plan(model, x).couplings.values())
    gone = chosen_channels(free, scores_of(model, free, choice), choice)
    assert_close(small(x), masked_copy(model, free, gone)(x), atol=1e-5, rtol=1e-5)
    total = sum(c.channels for c in free)
    assert sum(int(g.sum()) for g in gone) == pytest.approx(total / 2, abs=len(free))
    assert size(small) < 0.6 * size(model)


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
    macs = share * count_macs(model, x)
    assert count_macs(prune(model, x, macs=macs, scope=scope), x) == pytest.approx(macs, rel=0.02)


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
def test_widths_are_those_that_run_fastest(liked, monkeypatch, caplog):
    """53 of 76 channels are left, 56 in multiples of 8, 48 of 16; timed, not assumed."""
    widths = {1: 53, 8: 56, 16: 48}
    model = nn.Sequential(nn.Linear(4, 76), nn.ReLU(), nn.Linear(76, 2)).eval()
    monkeypatch.setattr(
        pruning, "timed", lambda m, _x: (1.0 if m[0].out_features == widths[liked] else 2.0, [])
    )
    with caplog.at_level("INFO"):
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
