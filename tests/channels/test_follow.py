"""Following channels: what is coupled with what, and what says no."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from torchlift.channels.couplings import couplings
from torchlift.channels.follow import traced
from torchlift.channels.follow.labels import Labels, compressed_labels
from torchlift.deploy import prune, shrink, shrinkable


def channels_and_reasons(model: nn.Module, x: object) -> dict[str, tuple[int, str]]:
    """(channels, reason) of each coupling, by the layer that writes it."""
    return {c.name: (c.channels, c.blocked) for c in couplings(traced(model.eval(), x)[0])}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), max_size=20))
def test_union_is_the_transitive_closure(pairs):
    labels = Labels()
    labels.add("w", torch.zeros(12))
    for a, b in pairs:
        labels.unite(torch.tensor([a]), torch.tensor([b]))
    near = {i: {i} for i in range(1, 13)}
    for _ in range(12):
        for a, b in pairs:
            near[a] = near[b] = near[a] | near[b]
            for i in near[a]:
                near[i] = near[a]
    roots = labels.roots(torch.arange(13)).tolist()
    for i in range(1, 13):
        for j in range(1, 13):
            assert (roots[i] == roots[j]) == (j in near[i])


def test_what_meets_the_unknown_stays_for_the_first_reason():
    labels = Labels()
    labels.add("w", torch.zeros(3))
    labels.unite(torch.tensor([1, 2]), torch.tensor([0, 3]), "because")
    labels.freeze(torch.tensor([1]), "later")
    assert labels.frozen() == {1: "because"}


def test_compression_keeps_what_differs():
    rows = torch.arange(3)[:, None].expand(3, 4)
    assert compressed_labels(rows).shape == (3, 1)
    assert compressed_labels(torch.zeros(3, 4)).shape == (1, 1)
    assert compressed_labels(torch.arange(12).reshape(3, 4)).shape == (3, 4)


class Grouped(nn.Module):
    """A grouped convolution, GroupNorm, a plain convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 1)
        self.groups = nn.Conv2d(8, 12, 3, padding=1, groups=4)
        self.norm = nn.GroupNorm(2, 12)
        self.last = nn.Conv2d(12, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.groups(self.first(x))).relu()).mean((2, 3))


def test_whole_groups_of_convolutions_and_norms_go():
    torch.manual_seed(0)
    model, x = Grouped().eval(), torch.randn(2, 3, 6, 6)
    small = prune(model, x, 0.5)
    assert (small.first.out_channels, small.groups.groups, small.groups.out_channels) == (4, 2, 6)
    assert (small.norm.num_groups, small.norm.num_channels, small.last.in_channels) == (1, 6, 6)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
def test_recurrent_units_go_in_all_gates_layers_and_directions(kind, options):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = kind(5, 6, batch_first=True, **options)
            self.head = nn.Linear(6 * (1 + options.get("bidirectional", False)), 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(x)[0][:, -1])

    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(3, 4, 5)
    with torch.no_grad():
        for name, p in model.rnn.named_parameters():
            gates = p.view(-1, 6, *p.shape[1:])  # rows by gate and unit
            gates[:, 2:4] = 0
            del name
    small = shrink(model, x)
    assert small.rnn.hidden_size == 4
    assert_close(small(x), model(x), atol=1e-6, rtol=0)
    assert_close(small(torch.cat([x, x], 1)), model(torch.cat([x, x], 1)), atol=1e-6, rtol=0)


class Odd(nn.Module):
    """An operation that mixes, one that is unknown, and channels that leave by the output."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.last, self.how = nn.Linear(4, 6), nn.Linear(6, 3), how

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        h = self.first(x)
        if self.how == "softmax":
            h = h.softmax(-1)
        elif self.how == "unknown":
            h = torch.fft.fft(h).real
        elif self.how == "output":
            return self.last(h), h
        elif self.how == "sorted":
            h = h.sort(-1).values
        return self.last(h)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("softmax", "softmax mixes"),
        ("unknown", "is not an operation that can be followed"),
        ("output", "output"),
        ("sorted", "sort mixes"),
    ],
)
def test_what_cannot_be_cut_says_why(how, says):
    model, x = Odd(how).eval(), torch.randn(2, 4)
    with torch.no_grad():
        model.first.weight[:2] = model.first.bias[:2] = 0
    (row,) = (row for row in shrinkable(model, x) if row.layer == "first" and row.zero)
    assert row.cut == 0
    assert says in row.why
    assert torch.equal(torch.as_tensor(shrink(model, x)(x)[0]), torch.as_tensor(model(x)[0]))


def test_sizes_written_down_in_the_code_raise():
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(x).view(-1, 6).relu())

    model = Fixed().eval()
    with torch.no_grad():
        model.first.weight[:2] = model.first.bias[:2] = 0
    (row,) = (row for row in shrinkable(model, torch.randn(2, 4)) if row.layer == "first")
    assert (row.zero, row.cut) == (2, 0)
    assert "a number in a view" in row.why
    assert prune(model, torch.randn(2, 4), 0.5).first.out_features == 6


def test_an_activation_that_never_fires_is_not_taken_for_dead():
    """Constant at these weights, not because of zeros: training may wake it."""
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)).eval()
    with torch.no_grad():
        model[0].bias[:3] = -1000.0
    assert shrink(model, torch.rand(3, 4))[0].out_features == 6


@pytest.mark.parametrize("name", ["Qwen3", "Gemma", "Mistral"])
def test_other_families_of_transformers_shrink_exactly(name):
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{name}Config")(
        vocab_size=30,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=4,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    model, x = getattr(transformers, f"{name}ForCausalLM")(config).eval(), torch.randint(30, (2, 6))
    small = prune(model, x, 0.5)
    assert sum(p.numel() for p in small.parameters()) < 0.4 * sum(p.numel() for p in model.parameters())
    attention = small.model.layers[0].self_attn
    assert (attention.q_proj.out_features, attention.k_proj.out_features) == (8, 4)


def test_a_shrunken_model_can_be_shrunk_again():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True)
    model, x = nn.Sequential(nn.Linear(5, 16), layer, nn.Linear(16, 3)).eval(), torch.randn(2, 6, 5)
    once = prune(model, x, 0.5)
    twice = prune(once, x, 0.5)
    assert twice[0].out_features == 4
    assert twice[1].norm1.count == 16
    assert "norm" not in {why for _, why in channels_and_reasons(twice, x).values()}
