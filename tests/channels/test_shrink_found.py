"""What shrinking once got wrong: each a test that failed."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from torchlift.deploy import channel_groups, plan, prune, shrink, shrinkable
from torchlift.errors import TorchliftError


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def halved(model: nn.Module, x: object) -> nn.Module:
    """The model with the first half of every group of channels zero."""
    couplings, model = plan(model, x).couplings.values(), copy.deepcopy(model)
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for coupling in couplings:
            for member in coupling.of("writes"):
                if member.name in weights:
                    index = member.index[member.channel < coupling.channels // 2]
                    weights[member.name].index_fill_(member.dim, index, 0)
    return model


def llama(**more: int) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = transformers.LlamaConfig(
        vocab_size=30, num_key_value_heads=2, bos_token_id=0, eos_token_id=1, **sizes | more
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.timeout(120)
def test_rotary_positions_do_not_hang_and_grouped_heads_go():
    model, x = llama(), torch.randint(30, (2, 6))
    groups = channel_groups(model, x)
    heads = next(members for members in groups.values() if any("k_proj" in name for name in members))
    assert {name.split(".")[-2] for name in heads} == {"q_proj", "k_proj", "v_proj"}
    small = shrink(closed := halved(model, x), x)
    assert size(small) < 0.35 * size(model)
    assert_close(small(x).logits, closed(x).logits, atol=1e-6, rtol=0)
    attention = small.model.layers[0].self_attn
    assert attention.q_proj.out_features == 2 * attention.k_proj.out_features == 8


def test_single_features_inside_heads_are_not_gated_and_whole_heads_are():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=40,
        image_size=8,
        patch_size=4,
    )
    model = transformers.ViTForImageClassification(config).eval()
    groups = channel_groups(model, torch.randn(2, 3, 8, 8))
    (heads,) = (members for members in groups.values() if any("q_proj" in name for name in members))
    for dim, index in heads.values():
        assert dim == 0
        assert index == tuple(i // 6 for i in range(24))


@pytest.mark.parametrize("kind", ["bert", "torch", "gqa"])
def test_dead_heads_go_under_any_name(kind):
    if kind == "bert":
        transformers = pytest.importorskip("transformers")
        config = transformers.BertConfig(
            vocab_size=30, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4
        )
        model, x = transformers.BertForSequenceClassification(config).eval(), torch.randint(30, (2, 6))
        rows = "bert.encoder.layer.0.attention.self.value"
    elif kind == "gqa":
        model, x, rows = llama(), torch.randint(30, (2, 6)), "model.layers.0.self_attn.v_proj"
    else:
        layer = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True)
        model = nn.Sequential(nn.Linear(5, 16), layer, nn.Linear(16, 3)).eval()
        x, rows = torch.randn(2, 6, 5), "1.self_attn.in_proj"
    weight = dict(model.named_parameters())
    with torch.no_grad():
        values = weight[f"{rows}_weight"][32:] if kind == "torch" else weight[f"{rows}.weight"]
        values[4:8] = 0
    before = size(model)
    small = shrink(model, x)
    assert size(small) < before
    expected, actual = (m(x) if kind == "torch" else m(x).logits for m in (model, small))
    assert_close(actual, expected, atol=1e-6, rtol=0)


def depthwise() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 2),
    ).eval()
    with torch.no_grad():
        model[0].weight[:4] = 0
    return model


def test_a_constant_that_depends_on_the_size_of_images_is_not_folded():
    model = depthwise()
    small = shrink(model, torch.randn(2, 3, 16, 16))
    for side in (8, 16, 33):
        x = torch.randn(2, 3, side, side)
        assert_close(small(x), model(x), atol=1e-6, rtol=0)
    assert small[0].out_channels == 8


def test_it_is_folded_where_the_model_has_one_size():
    model = nn.Sequential(*list(depthwise())[:2], nn.Flatten(), nn.Linear(8 * 36, 2)).eval()
    x = torch.randn(2, 3, 6, 6)
    small = shrink(model, x)
    assert small[0].out_channels == 4
    assert_close(small(x), model(x), atol=1e-6, rtol=0)


class Casting(nn.Module):
    """Casts to single precision on the way, as mixed-precision code does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu().float())


def test_a_model_that_casts_is_shrunk_in_single_precision():
    model = Casting().eval()
    with torch.no_grad():
        model.first.weight[:4] = model.first.bias[:4] = 0
    x = torch.randn(3, 4)
    small = shrink(model, x)
    assert small.first.out_features == 4
    assert_close(small(x), model(x), atol=1e-5, rtol=0)


def net(bias: bool = True) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3, bias=bias)).eval()


def trains(model: nn.Module, optimizer: torch.optim.Optimizer) -> set[str]:
    """The parameters that a step moves."""
    before = copy.deepcopy(model.state_dict())
    optimizer.zero_grad()
    model(torch.randn(16, 5)).square().sum().backward()
    optimizer.step()
    return {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}


def test_the_optimizer_follows_where_nothing_is_cut():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    small = shrink(model, torch.randn(2, 5), optimizer)
    assert trains(small, optimizer) == {name for name, _ in small.named_parameters()}


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
def test_the_optimizer_takes_up_biases_made_by_folding(make):
    model = net(bias=False)
    with torch.no_grad():
        model[0].weight[:4] = 0
        model[0].bias[:4] = 1.0
    optimizer = make(model.parameters(), lr=0.1)
    small = shrink(model, torch.randn(2, 5), optimizer)
    assert small[2].bias is not None
    assert trains(small, optimizer) == {name for name, _ in small.named_parameters()}


@pytest.mark.parametrize("make", [torch.optim.LBFGS, torch.optim.Adafactor])
def test_optimizers_whose_state_cannot_be_cut_raise(make):
    model = net()
    with pytest.raises(TorchliftError, match="cannot be cut"):
        shrink(model, torch.randn(2, 5), make(model.parameters(), lr=0.1))


def test_every_row_that_keeps_channels_has_a_reason():
    """Nothing is masked here, so nothing goes; what could never go says why."""
    model, x = llama(), torch.randint(30, (2, 6))
    rows = shrinkable(model, x)
    assert not any(row.cut for row in rows)
    assert all(row.why for row in rows)
    why = {row.layer: row.why for row in rows}
    assert "output" in why["lm_head"]
    assert "in use" in why["model.layers.0.mlp.gate_proj"]


def test_the_model_is_left_alone():
    model = net().train()
    state = copy.deepcopy(model.state_dict())
    prune(model, torch.randn(2, 5), 0.5)
    assert model.training
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
