"""Operations inside kernels that torch's counter does not know."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from torchlift.flops import count_flops


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_fused_lstm_counts_as_its_matrix_products(bidirectional):
    ways = 1 + bidirectional
    lstm = nn.LSTM(8, 16, 2, batch_first=True, bidirectional=bidirectional)
    x = torch.randn(2, 5, 8, requires_grad=True)
    forward = 2 * 2 * 5 * ways * 4 * 16 * ((8 + 16) + (16 * ways + 16))
    with torch.no_grad():
        assert count_flops(lambda: lstm(x)) == forward
    assert count_flops(lambda: lstm(x)[0].sum().backward()) == 3 * forward


def test_fused_attention_counts_as_its_matrix_products():
    q = torch.randn(2, 4, 10, 8, requires_grad=True)
    product = 2 * 2 * 4 * 10 * 10 * 8
    with torch.no_grad():
        assert count_flops(lambda: scaled_dot_product_attention(q, q, q, is_causal=True)) == 2 * product
    both = count_flops(lambda: scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward())
    assert both == (2 + 5) * product  # torch's convention: the backward pass recomputes the scores


def test_the_fast_path_is_switched_back_on_after_a_failure():
    with pytest.raises(ZeroDivisionError):
        count_flops(lambda: 1 / 0)
    assert torch.backends.mha.get_fastpath_enabled()
