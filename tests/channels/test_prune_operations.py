"""Operations and outputs that once kept channels for no good reason."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.testing import assert_close

import torchlift as tl
from torchlift.channels.couplings import couplings
from torchlift.channels.cuts import masked_copy
from torchlift.channels.follow import traced
from torchlift.channels.prune import traced_groups
from torchlift.channels.scores import PruningChoice, chosen_channels, scores_of
from torchlift.channels.surgery import usable
from torchlift.deploy import prune
from torchlift.errors import TorchliftError


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def reference(model: nn.Module, x: Tensor, output=None) -> nn.Module:
    """The model with the channels that go set to zero."""
    trace, groups = traced_groups(model, x, output, 0.5)
    free = [c for c in usable(model, trace, groups, output) if not c.blocked]
    return masked_copy(
        model,
        free,
        chosen_channels(free, scores_of(model, free, PruningChoice()), PruningChoice()),
        trace.scaled,
    )


class ResponseNorm(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, 1, 1, channels))
        self.bias = nn.Parameter(torch.randn(1, 1, 1, channels))

    def forward(self, x: Tensor) -> Tensor:
        size = torch.linalg.vector_norm(x, ord=2, dim=(1, 2), keepdim=True)
        return self.weight * (x * (size / (size.mean(-1, keepdim=True) + 1e-6))) + self.bias + x


class LastDim(nn.Module):
    """A module on maps with their channels last."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Shrunk(nn.Module):
    """Takes the width of its input for that of what a convolution made of it, as code does."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).reshape(x.shape[0], x.shape[1], -1, 1)


class Shuffled(nn.Module):
    """Convolutions in two groups, channels dealt out between them, as in ShuffleNet."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(16, 16, 1, groups=2), nn.Conv2d(16, 16, 1, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        n, c, h, w = y.shape
        return x + self.last(y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w))


def pooled(x: Tensor) -> Tensor:
    return functional.adaptive_avg_pool2d(x.contiguous(memory_format=torch.channels_last), 1).flatten(1)


class Net(nn.Module):
    def __init__(self, middle: nn.Module) -> None:
        super().__init__()
        self.first, self.middle, self.head = nn.Conv2d(3, 16, 3), middle, nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(pooled(self.middle(self.first(x).relu())))


@pytest.mark.parametrize(
    "make",
    [
        nn.Identity,
        lambda: nn.GroupNorm(1, 16),
        lambda: LastDim(nn.LayerNorm(16)),
        lambda: LastDim(ResponseNorm(16)),
        lambda: nn.utils.parametrizations.weight_norm(nn.Conv2d(16, 16, 3)),
        lambda: nn.utils.parametrizations.weight_norm(nn.Conv2d(16, 16, 3, groups=4), dim=3),
        Shrunk,
        lambda: nn.Conv2d(16, 16, 3, groups=4),
        lambda: nn.ConvTranspose2d(16, 16, 3, groups=2),
        lambda: nn.Conv2d(16, 16, 3, groups=16),
    ],
)
def test_half_of_the_channels_go_exactly(make):
    torch.manual_seed(0)
    model, x = Net(make()).eval(), torch.randn(2, 3, 8, 8)
    small = prune(model, x, 0.5)
    assert (small.first.out_channels, small.head.in_features) == (8, 8)
    assert_close(small(x), reference(model, x)(x), atol=1e-5, rtol=1e-5)
    again = prune(small, x, 0.5)
    assert again.head.in_features == 4
    assert_close(again(x), reference(small, x)(x), atol=1e-5, rtol=1e-5)


def test_groups_become_narrower_where_channels_are_shuffled_between_them():
    torch.manual_seed(0)
    model, x = Net(Shuffled()).eval(), torch.randn(2, 3, 8, 8)
    small = prune(model, x, 0.5)
    assert [(c.in_channels, c.out_channels, c.groups) for c in (small.middle.conv, small.middle.last)] == [
        (8, 8, 2)
    ] * 2
    assert_close(small(x), reference(model, x)(x), atol=1e-5, rtol=1e-5)


def test_a_grouped_layer_whose_outputs_alone_were_cut_is_loaded_into_its_class(tmp_path):
    torch.manual_seed(0)
    make = lambda: nn.Sequential(nn.Conv1d(8, 16, 3, groups=4), nn.ReLU(), Own())
    model, x = make().eval(), torch.randn(2, 8, 9)
    small = prune(model, x, 0.5, round_to=1)
    assert (small[0].in_channels, small[0].out_channels, small[0].groups) == (8, 8, 4)
    tl.deploy.save(small, tmp_path / "m.tl")
    again = tl.deploy.load(tmp_path / "m.tl", into=make())
    assert torch.equal(again(x), small(x))


class Own(nn.Module):
    """A class that no file may hold."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.mean(-1))


class PartlyRotated(nn.Module):
    """Attention of which some features of each head are multiplied with a table, the others not."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(12, 12), nn.Linear(12, 3)
        self.register_buffer("table", torch.randn(7, 2))

    def forward(self, x: Tensor) -> Tensor:
        heads = self.project(x).unflatten(-1, (-1, 3))
        turned, rest = heads[..., :2], heads[..., 2:]
        return self.out(torch.cat([turned * self.table[:, None], rest], -1).flatten(-2))


def test_heads_go_where_only_some_of_their_features_meet_a_table():
    torch.manual_seed(0)
    model, x = PartlyRotated().eval(), torch.randn(2, 7, 12)
    assert prune(model, x, 0.5).project.out_features == 6


class Outputs(nn.Module):
    def __init__(self, kind: type) -> None:
        super().__init__()
        self.first, self.last, self.kind = nn.Linear(4, 8), nn.Linear(8, 3), kind

    def forward(self, x: Tensor) -> object:
        hidden = self.first(x).relu()
        if self.kind is dict:
            return {"last_hidden_state": hidden, "logits": self.last(hidden)}
        return hidden, self.last(hidden)


def test_states_inside_a_model_do_not_pin_its_channels_and_named_outputs_do():
    model, x = Outputs(dict).eval(), torch.randn(2, 4)
    small = prune(model, x, 0.5)
    assert small.first.out_features == 4
    assert_close(small(x)["logits"], reference(model, x)(x)["logits"])
    assert prune(model, x, 0.5, output=["logits", "last_hidden_state"]).first.out_features == 8
    with pytest.raises(TorchliftError, match="it has last_hidden_state, logits"):
        prune(model, x, 0.5, output="boxes")


def test_of_a_tuple_all_counts_unless_named():
    model, x = Outputs(tuple).eval(), torch.randn(2, 4)
    assert prune(model, x, 0.5).first.out_features == 8
    assert prune(model, x, 0.5, output=1).first.out_features == 4


def test_a_table_of_numbers_is_not_cut():
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.randn(5, 2))
            self.first, self.last = nn.Linear(2, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.last(self.first(self.table).relu())

    model, x = Positions().eval(), torch.randn(2, 5, 3)
    reasons = {c.blocked for c in couplings(traced(model, x, values=False)[0])}
    assert any("table of numbers" in reason for reason in reasons)
    assert prune(model, x, 0.5).first.out_features == 4
