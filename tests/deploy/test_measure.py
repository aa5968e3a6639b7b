import copy

import pytest
import torch
from torch import Tensor, nn

from torchlift.deploy import Measured, measure, save
from torchlift.models import GPT, MLP, CharLSTM, LeNet5


def test_closed_forms_of_a_linear_layer(tmp_path):
    model = nn.Linear(8, 3)
    nn.init.ones_(model.weight)
    nn.init.zeros_(model.bias)
    measured = measure(model, torch.randn(5, 8), repeats=1)
    assert (measured.params, measured.nonzero, measured.bits, measured.macs) == (27, 24, 27 * 32, 24)
    assert measured.file_bytes == save(model, tmp_path / "model") == (tmp_path / "model").stat().st_size
    assert measured.latency_ms > 0


def test_lenet():
    measured = measure(LeNet5(), torch.randn(4, 3, 32, 32), repeats=1)
    convolutions = 32 * 32 * 6 * 75 + 16 * 16 * 16 * 150
    assert measured.params == 70_346
    assert measured.macs == convolutions + 1024 * 60 + 60 * 84 + 84 * 10


def lstm_macs(time: int, width: int, vocabulary: int) -> int:
    return time * (4 * width * 2 * width + width * vocabulary)


def gpt_macs(time: int, width: int, vocabulary: int) -> int:
    return time * (12 * width**2 + width * vocabulary) + 2 * time**2 * width


@pytest.mark.parametrize(
    ("model", "macs"),
    [
        (CharLSTM(11, 8, layers=1), lstm_macs(6, 8, 11)),
        (GPT(11, 6, 8, depth=1, heads=2), gpt_macs(6, 8, 11)),
    ],
)
def test_operations_inside_fused_kernels_are_counted(model, macs):
    assert measure(model, torch.zeros(3, 6, dtype=torch.int64), repeats=1).macs == macs


def test_operations_of_torchs_fast_path_are_counted():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    macs = 5 * (4 * 8 * 8 + 2 * 8 * 16) + 2 * 5 * 5 * 8
    assert measure(layer, torch.randn(2, 5, 8), repeats=1).macs == macs


def test_tied_weights_count_once_everywhere():
    tied, free = (
        measure(CharLSTM(50, 8, tie=tie), torch.zeros(1, 2).long(), repeats=1) for tie in (True, False)
    )
    assert free.params - tied.params == 50 * 8
    assert free.bits - tied.bits == 50 * 8 * 32
    assert free.file_bytes - tied.file_bytes == pytest.approx(50 * 8 * 4, rel=0.25)  # exponents are coded


def test_halves_take_half_the_bits():
    model = MLP(8, 4, 2)
    whole, half = (
        measure(model, torch.randn(1, 8), repeats=1),
        measure(copy.deepcopy(model).bfloat16(), torch.randn(1, 8).bfloat16(), repeats=1),
    )
    assert whole.bits == 2 * half.bits


class Sum(nn.Module):
    """Takes two arguments, and remembers that it was called."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        self.calls += 1
        return self.linear(a + b) + torch.randn(4)


@pytest.mark.parametrize("example", [(torch.ones(2, 4),) * 2, {"a": torch.ones(2, 4), "b": torch.ones(2, 4)}])
def test_examples_with_several_arguments(example):
    assert measure(Sum(), example, repeats=1).macs == 16


class Both(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sum, self.norm, self.dropout = Sum(), nn.BatchNorm1d(4), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.norm(self.sum(x, x)))


def test_nothing_is_touched():
    model = Both().train()
    model.norm.eval()
    modes = [module.training for module in model.modules()]
    state, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    measure(model, torch.ones(3, 4), repeats=2)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in state.items())
    assert torch.backends.mha.get_fastpath_enabled()


def test_models_without_parameters_and_scalar_examples():
    measured = measure(nn.Identity(), torch.tensor(1.0), repeats=2)
    assert measured == Measured(
        0, 0, 0, measured.file_bytes, measured.file_bytes - 9, 0, pytest.approx(0, abs=10)
    )
    assert measured.file_bytes < 200


def test_zeros_make_the_file_smaller():
    model = nn.Linear(100, 100)
    dense = measure(model, torch.randn(1, 100), repeats=1).file_bytes
    nn.init.sparse_(model.weight, 0.9)
    assert measure(model, torch.randn(1, 100), repeats=1).file_bytes < 0.2 * dense


class Odd(nn.Module):
    """Nothing a packed file knows how to name: only its tensors are counted."""

    def __init__(self):
        super().__init__()
        self.weight, self.odd = nn.Parameter(torch.randn(1000)), object()

    def forward(self, x):
        return x * self.weight


def test_a_model_that_cannot_be_written_down_counts_its_tensors():
    assert 3000 < measure(Odd(), torch.randn(2, 1000), repeats=1).file_bytes <= 4100


def test_expanded_tensors_are_measured():
    class Expanded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("one", torch.ones(3)[:1].expand(1))
            self.register_buffer("many", torch.ones(1, 1).expand(4, 5))
            self.register_buffer("part", torch.arange(12.0)[::5][:1].as_strided((1,), (7,)))
            self.register_buffer("none", torch.ones(1).as_strided((0,), (0,)))

        def forward(self, x):
            return x * self.one + self.many.sum()

    assert measure(Expanded(), torch.ones(2, 1), repeats=1).file_bytes > 0


def test_no_repeats_raises():
    with pytest.raises(ValueError, match="at least one repeat"):
        measure(nn.Identity(), torch.ones(1), repeats=0)
