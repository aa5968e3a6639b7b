"""Stored graphs: what models need runs, what nobody needs is refused, whatever the file says."""

import random

import pytest
import torch
from torch import Tensor, nn

from forging import plant, rewritten
from torchlift.models import GPT, MLP, CharLSTM, LeNet5, ResNet
from torchlift.packed.budget import PackedError
from torchlift.packed.file import packed
from torchlift.packed.operations import ALLOWED, ARITHMETIC, operation
from torchlift.packed.programs import Program, verify
from torchlift.packed.unpacking import unpacked

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Called(nn.Module):
    """A function as a model."""

    def __init__(self, function, *parts) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.parts)


def statistics(x: Tensor) -> Tensor:
    spread = x.std(-1, keepdim=True) + x.var(-1, keepdim=True) + x.amax(-1, True) - x.min(-1, True).values
    return (x - x.mean(-1, keepdim=True)) / spread + x.softmax(-1).cumsum(-1) + x.topk(8, -1).values


def shapes(x: Tensor) -> Tensor:
    first, second = torch.cat([x.flip(1), x.roll(1, 1)], 1).chunk(2, 1)
    folded = x.reshape(x.shape[0] * 4, -1).view(x.shape[0], 4, 8)
    stacked = torch.stack([x, x.expand(x.shape[0], 4, 8)]).sum(0)
    return first + second + x[:, [1, 0, 2, 3]] + folded + stacked + torch.arange(8).repeat(4, 1)


IMAGE, SEQUENCE, TEXT = torch.randn(2, 3, 32, 32), torch.randn(2, 4, 8), torch.randint(20, (2, 8))
MODELS = {
    "LeNet5": (LeNet5(), IMAGE),
    "ResNet": (ResNet(8, 4), IMAGE),
    "MLP": (MLP(8, 4, 2), torch.randn(2, 8)),
    "GPT": (GPT(20, 8, 16, 2, 2), TEXT),
    "CharLSTM": (CharLSTM(20, 8), TEXT),
    "GRU": (Called(lambda x, gru: gru(x)[0], nn.GRU(8, 5, 2, bidirectional=True)), SEQUENCE),
    "attention": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), SEQUENCE),
    "heads": (Called(lambda x, part: part(x, x, x)[0], nn.MultiheadAttention(8, 2)), SEQUENCE),
    "pools": (nn.Sequential(nn.AvgPool2d(2), nn.MaxPool2d(2), nn.Upsample(scale_factor=2)), IMAGE),
    "norms": (nn.Sequential(nn.GroupNorm(3, 3), nn.InstanceNorm2d(3), nn.LayerNorm(32), nn.PReLU()), IMAGE),
    "pads": (nn.Sequential(nn.ConvTranspose2d(3, 4, 3, 2), nn.PixelShuffle(2), nn.ReflectionPad2d(1)), IMAGE),
    "statistics": (Called(statistics), SEQUENCE),
    "shapes": (Called(shapes), SEQUENCE),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_graphs_compute_what_the_model_does(name):
    model, x = MODELS[name]
    again = unpacked(packed(model.eval(), x))
    assert isinstance(again, Program)
    torch.testing.assert_close(again(x), model(x), rtol=1e-4, atol=1e-5)
    more = torch.cat([x, x, x])
    torch.testing.assert_close(again(more), model(more), rtol=1e-4, atol=1e-5)


def one_step(
    name: str, args: list, kwargs: dict | None = None, *, given: int = 1, limit: int = 2**24
) -> Program:
    """A program of one operation on its inputs, as a file would hold it."""
    program = Program().eval()
    program.names, program.weights = [f"input{k}" for k in range(given)], []
    program.steps, program.results = [(name, args, kwargs or {})], {"value": given}
    verify(program, limit)
    return program


X = {"value": 0}
Y = {"value": 1}
NOT_ALLOWED = [
    "aten.sparse_coo_tensor.size", "aten.sparse_coo_tensor.indices_size",
    "aten._sparse_coo_tensor_unsafe.default", "aten.to_dense.default", "aten.segment_reduce.default",
    "aten.save.default", "aten.from_file.default", "aten.as_strided.default", "aten.set_.source_Storage",
    "aten.resize_.default", "aten.add_.Tensor", "aten.add.out", "aten.item.default", "aten.nonzero.default",
    "aten.embedding_bag.padding_idx", "aten.masked_select.default", "aten.bincount.default",
    "aten.rand.default", "aten.index_put.default", "aten.__class__", "aten.abs", "aten", "", None, 3,
    ["aten.abs.default"], "os.system", "operator.attrgetter", "operator.pow", "operator.matmul",
    "builtins.eval", "prims.abs.default", "torch.load",
]  # fmt: skip


@pytest.mark.parametrize("name", NOT_ALLOWED, ids=str)
def test_what_is_not_on_the_list_is_refused_by_name(name):
    with pytest.raises(PackedError, match="not allowed"):
        operation(name)


def test_everything_on_the_list_is_there_and_pure():
    for name in ALLOWED:
        assert not operation(name)._schema.is_mutable
        assert "aten.empty" not in str(operation(name))


@pytest.mark.parametrize(
    "name", ["aten.sparse_coo_tensor.size", "aten.segment_reduce.default", "aten.save.default"]
)
def test_a_file_that_names_them_is_refused_when_it_is_loaded(name):
    data = packed(nn.Linear(2, 2), torch.randn(1, 2))
    step = ["model", "plain", "steps", 0, "tuple", 0]
    with pytest.raises(PackedError, match=name):
        unpacked(rewritten(data, plant(step, name)))


HUGE = 2**40
HOSTILE = {
    "a tensor beyond all memory": ("aten.zeros.default", [[HUGE, HUGE]]),
    "a tensor beyond the limit": ("aten.zeros.default", [[2**13, 2**13]]),
    "negative sizes": ("aten.zeros.default", [[-4, -4]]),
    "sizes that overflow": ("aten.full.default", [[2**31, 2**31, 2**31], 1.0]),
    "no entries, many rows": ("aten.zeros.default", [[2**31, 0]]),
    "repeated without end": ("aten.repeat.default", [X, [2**20, 2**20]]),
    "expanded without end": ("aten.expand.default", [X, [2**20, 2**20, 4, 4]]),
    "outer": ("aten.arange.default", [2**31]),
    "a step of nothing": ("aten.slice.Tensor", [X, 0, 0, 4, 0]),
    "a stride of nothing": ("aten.max_pool2d.default", [X, [2, 2], [0, 0]]),
    "a negative kernel": ("aten.avg_pool2d.default", [X, [-2, -2]]),
    "a dilation of nothing": ("aten.max_pool2d.default", [X, [2, 2], [1, 1], [0, 0], [0, 0]]),
    "no groups": ("aten.channel_shuffle.default", [X, 0]),
    "padding without end": ("aten.constant_pad_nd.default", [X, [2**31 - 1, 2**31 - 1]]),
    "a million differences": ("aten.diff.default", [X, 10**6]),
    "too many pieces": ("aten.split.Tensor", [X, 0]),
    "an unknown word": ("aten.gelu.default", [X], {"approximate": "system"}),
    "training": ("aten.dropout.default", [X, 0.5, True]),
    "noise": ("aten.rrelu.default", [X, 0.1, 0.3, True]),
    "an unknown argument": ("aten.abs.default", [X], {"out": X}),
    "too many arguments": ("aten.abs.default", [X, X]),
    "whole numbers divided": ("aten.remainder.Tensor", [{"value": 1}, {"value": 1}]),
    "a mask for indices": ("aten.index.Tensor", [X, [{"value": 2}]]),
    "text": ("operator.mul", ["a", 2**40]),
    "a tensor for a number": ("operator.add", [X, X]),
    "numbers without end": ("operator.mul", [2**62 + 1, 2]),
    "nothing divided": ("operator.floordiv", [1, 0]),
    "a part of a tensor": ("operator.getitem", [X, 0]),
    "statistics of too few channels": ("aten._native_batch_norm_legit_no_training.default",
                                       [X, None, None, {"value": 3}, {"value": 3}, 0.1, 1e-5]),
    "attention to other features": ("aten.scaled_dot_product_attention.default", [X, {"value": 4}, X]),
    "an LSTM without weights": ("aten.lstm.input", [{"value": 5}, [X, X], [], True, 1, 0.0, *[False] * 3]),
    "classes by value": ("aten.one_hot.default", [{"value": 1}, -1]),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_arguments_are_refused_before_anything_runs(case):
    name, args, *rest = HOSTILE[case]
    given = [
        torch.randn(2, 4, 4, 4), torch.tensor([-(2**63), 5]), torch.ones(2, dtype=torch.bool), torch.ones(1),
        torch.randn(2, 4, 4, 5), torch.randn(3, 2, 4),
    ]  # fmt: skip
    with pytest.raises(PackedError, match=name):
        one_step(name, args, *rest, given=len(given))(*given)


@pytest.mark.parametrize("reference", [-1, 1, 2, 99, "0", 0.0, True, None])
def test_references_are_to_values_that_exist(reference):
    program = Program()
    program.names, program.weights, program.results = ["x"], [], X
    program.steps = [("aten.abs.default", [{"value": reference}], {})]
    with pytest.raises(PackedError, match="refers"):
        verify(program, None)


def test_a_file_cannot_bring_its_own_permission():
    data = packed(nn.Linear(2, 2), torch.randn(1, 2))
    for attribute, value in [("admitted", {"set": []}), ("limit", 2**60), ("ends", []), ("forward", 1)]:
        with pytest.raises(PackedError, match=attribute):
            unpacked(rewritten(data, plant(["model", "plain", attribute], value)))


def test_the_example_in_a_file_is_walked_without_memory():
    """A batch of 2^40 rows in the file is refused at once: nothing of that size is made."""
    data = packed(nn.Linear(2, 2), torch.randn(1, 2))
    shape = ["model", "plain", "inputs", 0, "tuple", 0]
    with pytest.raises(PackedError, match=r"aten\.linear"):
        unpacked(rewritten(data, plant(shape, [2**40, 2])), limit=2**24)
    with pytest.raises(PackedError, match=r"aten\.linear"):
        unpacked(rewritten(data, plant(shape, [4, 3])))


def test_results_are_held_against_the_limit_when_it_is_called():
    program = unpacked(packed(nn.Linear(2, 1000), torch.randn(1, 2)), limit=2**22)
    program(torch.randn(100, 2))
    with pytest.raises(PackedError, match="limit"):
        program(torch.randn(2000, 2))


def test_memory_that_nobody_wrote_is_not_shown():
    program = one_step("aten.empty_like.default", [X])
    assert (program(torch.ones(1000)) == 0).all()


def test_values_are_let_go_after_their_last_use():
    program = unpacked(packed(MLP(8, 4, 2).eval(), torch.randn(2, 8)))
    first = len(program.names) + len(program.weights)
    gone = [number for ended in program.endings() for number in ended]
    assert sorted(gone) == list(range(first, first + len(program.steps) - 1))


def test_wrong_inputs_are_named():
    program = unpacked(packed(nn.Linear(2, 2), torch.randn(1, 2)))
    with pytest.raises(ValueError, match="input0"):
        program()


def test_operations_one_by_one_with_hostile_arguments():
    """A few of what ``benchmarks/packed_fuzz.py --operations`` does at length, in this process."""
    from packed_arguments import attempt

    counts = {"refused": 0, "failed in torch": 0, "ran": 0}
    for name in [*sorted(ALLOWED), *(f"operator.{name}" for name in ARITHMETIC)]:
        for seed in range(4):
            counts[attempt(name, random.Random(f"{name} {seed}"))] += 1
    assert min(counts["refused"], counts["ran"]) > 50
