"""Every kind of layer as a matrix: rows times the matrix are what the layer gives, and weights go there
and back."""

import pytest
import torch
from torch import nn

from torchlift.compress.lags import Lags, lagged_gram
from torchlift.compress.linear_maps import BlockedMap, LinearMap, maps_in
from torchlift.core.stored import spread_step

LAYERS = {
    "linear": (nn.Linear(5, 3), (2, 4, 5)),
    "strided, grouped": (nn.Conv2d(4, 6, 3, padding=1, stride=2, groups=2), (3, 4, 9, 8)),
    "dilated, reflecting": (
        nn.Conv2d(4, 6, 3, padding="same", dilation=2, padding_mode="reflect"),
        (3, 4, 9, 8),
    ),
    "depthwise": (nn.Conv1d(4, 4, 3, groups=4), (3, 4, 9)),
    "volumes": (nn.Conv3d(2, 4, (1, 2, 3)), (3, 2, 4, 5, 6)),
    "long kernel": (nn.Conv2d(3, 4, (9, 1), padding=(2, 0), stride=(1, 2)), (5, 3, 30, 4)),
    "transposed": (
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        (3, 4, 5, 6),
    ),
    "transposed, dilated": (nn.ConvTranspose1d(4, 6, 4, stride=2, dilation=2), (3, 4, 5)),
    "lstm": (nn.LSTM(5, 4, 2, batch_first=True, bidirectional=True), (3, 7, 5)),
    "gru": (nn.GRU(5, 4, 2), (7, 3, 5)),
    "cell": (nn.LSTMCell(5, 4), (3, 5)),
}


def rows_of(one: LinearMap, layer: nn.Module, *args: torch.Tensor) -> torch.Tensor:
    return torch.cat(list(one.rows(layer, (args, {}), None)), 1)


@torch.no_grad()
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_its_matrix(name: str) -> None:
    layer, shape = LAYERS[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    output = layer(x)
    for one in maps_in("", layer):
        weight = layer.get_parameter(one.leaf)
        matrix = one.matrix(layer, weight)
        rows = rows_of(one, layer, x)
        actual = (rows @ matrix.mT).movedim(0, 1).flatten(1)
        bias = None if one.bias_leaf is None else layer.get_parameter(one.bias_leaf)
        torch.testing.assert_close(actual + bias, one.targets(layer, ((x,), {}), output, None))
        assert torch.equal(one.tensor(layer, matrix, weight.shape), weight)
        step = matrix.abs().amax(-1, keepdim=True)
        levels = one.tensor(layer, matrix / step, weight.shape)
        torch.testing.assert_close(
            levels * spread_step(one.step_tensor(layer, step, weight.shape), weight.shape), weight
        )
        lags = one.lags(layer, ((x,), {}))
        assert (lags is None) == (name != "long kernel")
        if lags is not None:
            torch.testing.assert_close(lagged_gram([lags]), rows.mT @ rows, atol=1e-3, rtol=1e-4)


@torch.no_grad()
def test_the_states_of_a_recurrent_layer_are_those_it_runs_through() -> None:
    rnn = nn.GRU(5, 4, 2, bidirectional=True)
    x = torch.randn(7, 3, 5)
    last = next(m for m in maps_in("", rnn) if m.leaf == "weight_hh_l1_reverse")
    before = rows_of(last, rnn, x).reshape(7, 3, 4)
    torch.testing.assert_close(before[1:], rnn(x)[0][..., 4:].flip(0)[:-1])


@torch.no_grad()
def test_attention_to_another_sequence() -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x, z = torch.randn(3, 4, 8), torch.randn(3, 6, 8)
    packed, heads = maps_in("", layer)
    rows = rows_of(packed, layer, x, z, z)
    assert rows.shape == (3, 18, 8)
    assert int(rows[0].isnan().any(1).sum()) == 6
    out = rows_of(heads, layer, x, z, z)[0] @ layer.out_proj.weight.T + layer.out_proj.bias
    torch.testing.assert_close(out.reshape(3, 4, 8), layer(x, z, z)[0])


@torch.no_grad()
def test_positions_can_be_thinned() -> None:
    layer, x = nn.Conv2d(2, 3, 3), torch.randn(4, 2, 6, 7)
    (one,), thin = maps_in("", layer), torch.tensor([0, 7, 19])
    rows = torch.cat(list(one.rows(layer, ((x,), {}), thin)), 1)[0]
    y = one.targets(layer, ((x,), {}), layer(x), thin)
    torch.testing.assert_close(rows @ layer.weight.flatten(1).T + layer.bias, y)


@torch.no_grad()
def test_blocks_of_columns_are_those_of_the_whole() -> None:
    layer, x = nn.Conv1d(4, 2, 9), torch.randn(3, 4, 20)
    (whole,) = maps_in("", layer)
    blocks = BlockedMap("", "weight", None, whole=whole, block=20)
    matrix, rows = blocks.matrix(layer, layer.weight), rows_of(blocks, layer, x)
    assert matrix.shape == (2, 2, 18)
    torch.testing.assert_close(
        (rows @ matrix.mT).sum(0), rows_of(whole, layer, x)[0] @ layer.weight.flatten(1).T
    )
    assert torch.equal(blocks.tensor(layer, matrix, layer.weight.shape), layer.weight)
    lags = blocks.lags(layer, ((x,), {}))
    assert lags is not None
    torch.testing.assert_close(lagged_gram([lags]), rows.mT @ rows, atol=1e-3, rtol=1e-4)


def test_lags_give_the_gram_matrix_of_all_patches() -> None:
    x = torch.randn(2, 3, 4, 25, dtype=torch.float64)
    patches = x.unfold(-1, 6, 1).permute(0, 1, 3, 2, 4).reshape(2, 3 * 20, 24)
    torch.testing.assert_close(lagged_gram([Lags.of(x, 6)]), patches.mT @ patches)
    batches = [Lags.of(some, 6) for some in x.split(1, 1)]
    torch.testing.assert_close(lagged_gram(batches), patches.mT @ patches)
