"""What channels and weights are worth, and that what goes by it is what a mask would take."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from torchlift.channels import scores as criteria
from torchlift.channels.cuts import masked_copy
from torchlift.channels.scores import PruningChoice, chosen_channels, scores_of
from torchlift.deploy import plan, prune
from torchlift.errors import TorchliftError
from torchlift.models import ResNet


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


@pytest.mark.parametrize("criterion", ["magnitude", "norm", "random", "taylor"])
@pytest.mark.parametrize("scope", ["local", "global"])
def test_half_of_the_channels_go_and_the_rest_computes_what_the_masked_model_does(criterion, scope):
    torch.manual_seed(0)
    model, x = ResNet(8, 8).eval(), torch.randn(2, 3, 16, 16)
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
    before, after = (sum(p.numel() for p in net.parameters()) for net in (model, small))
    assert after < 0.6 * before
