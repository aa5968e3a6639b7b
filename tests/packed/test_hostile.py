"""Files that want to hurt: refused in one line, at once, running nothing."""

import collections
import copy
import json
import zlib

import pytest
import torch
from torch import nn

from forging import plant, replanned, rewritten
from torchlift.packed.budget import Budget, PackedError, default_limit, product
from torchlift.packed.file import load, packed
from torchlift.packed.sealing import seal
from torchlift.packed.unpacking import FRONT, HEADER, unpacked


def tiny() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()


LINEAR = "torch.nn.modules.linear:Linear"
KIND, PLAIN, WEIGHT = (
    ["model", "class"],
    ["model", "plain"],
    ["model", "children", "0", "parameters", "weight"],
)
CONFIG = "transformers.models.gpt2.configuration_gpt2:GPT2Config"
KERNELS = {"dict": [["attn_implementation", "someone/kernels"]]}
BELOW = {"dict": [["a", {"dict": [["_attn_implementation_internal", "someone/kernels"]]}]]}
HOSTILE = {
    "a function for a class": plant(KIND, "os:system"),
    "a class outside": plant(KIND, "subprocess:Popen"),
    "no module class": plant(KIND, "torch.nn.modules.module:register_module_forward_hook"),
    "a class through another module": plant(KIND, "torch.nn.modules.linear:init.torch.jit.ScriptModule"),
    "a class through our own": plant(KIND, "torchlift.packed.file:nn.Linear"),
    "a class imported elsewhere": plant(KIND, "torchlift.packed.file:Program"),
    "a script of transformers": plant(KIND, "transformers.convert_graph_to_onnx:x"),
    "data parallel": plant(KIND, "torch.nn.parallel.data_parallel:DataParallel"),
    "no class": plant(KIND, 3),
    "a shell for an activation": plant([*PLAIN, "f"], {"function": "os:system"}),
    "torch.load for an activation": plant([*PLAIN, "f"], {"function": "torch:load"}),
    "an inner function": plant([*PLAIN, "f"], {"function": "torch.nn.functional:boolean_dispatch"}),
    "a hook": plant([*PLAIN, "_forward_hooks"], {"dict": []}),
    "a dunder": plant([*PLAIN, "__class__"], 1),
    "no name": plant([*PLAIN, "a.b"], 1),
    "a device that is none": plant([*PLAIN, "d"], {"device": "cpu" * 99}),
    "a kind that is none": plant([*PLAIN, "d"], {"pickle": "x"}),
    "two kinds": plant([*PLAIN, "d"], {"tuple": [], "set": []}),
    "a missing tensor": plant(WEIGHT, [99, True]),
    "a negative tensor": plant(WEIGHT, [-2, True]),
    "a tensor too many": plant([*PLAIN, "t"], {"tuple": [{"tensor": -1}] * 5}),
    "itself": plant(["model", "children", "0"], {"same_as": 0}),
    "a later module": plant(["model", "children", "0"], {"same_as": 7}),
    "nothing": plant(["model"], None),
    "a list": plant(["model"], []),
    "attention from elsewhere": plant([*PLAIN, "c"], {"config": CONFIG, "values": KERNELS}),
    "attention from elsewhere, below": plant([*PLAIN, "c"], {"config": CONFIG, "values": BELOW}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_headers_are_refused_and_run_nothing(case, tmp_path, monkeypatch):
    monkeypatch.setattr("os.system", lambda *_: pytest.fail("ran"))
    path = tmp_path / "h.tl"
    path.write_bytes(rewritten(packed(tiny()), HOSTILE[case]))
    with pytest.raises(PackedError) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def container(children: dict) -> dict:
    return {
        "class": "torch.nn.modules.container:Sequential",
        "plain": {},
        "parameters": {},
        "buffers": {},
        "children": children,
    }


def test_shared_modules_do_not_make_endless_paths():
    """Each of 60 modules holds the one before it twice: 2^60 paths in a few hundred bytes."""

    def doubled(header) -> None:
        tree = container({})
        for level in range(60):
            tree = container({"a": tree, "b": {"same_as": 60 - level}})
        header["model"] = tree

    data = rewritten(packed(nn.Sequential()), doubled)
    assert len(data) < 1000
    with pytest.raises(PackedError, match="paths"):
        unpacked(data)


def test_modules_are_not_endlessly_deep():
    def nested(header) -> None:
        tree = container({})
        for _ in range(300):
            tree = container({"a": tree})
        header["model"] = tree

    with pytest.raises(PackedError, match=r"deep|recursion"):
        unpacked(rewritten(packed(nn.Sequential()), nested))


def test_many_modules_are_counted():
    def wide(header) -> None:
        header["model"] = container({str(n): container({}) for n in range(5000)})

    data = rewritten(packed(nn.Sequential()), wide)
    with pytest.raises(PackedError, match="limit"):
        unpacked(data, limit=40 * 2**20)
    assert len(list(unpacked(data, limit=2**27).children())) == 5000


def test_products_of_shapes_stop_early():
    for shape in ([2**39] * 50, [2**40, 2**40], [0, 2**62, 2**62], [2] * 100_000, [-1], [1.0], [True], ["1"]):
        with pytest.raises(PackedError, match="shape"):
            product(shape)
    assert (product([3, 4, 5]), product([]), product([3, 0])) == (60, 1, 0)


def test_bombs_are_refused_by_default():
    """A few dozen bytes that would unfold to 4 GiB of zeros, and a header that would to gigabytes of JSON."""
    layer = nn.Linear(1, 1, bias=False)
    data = replanned(packed(layer), lambda plan: plan)
    assert unpacked(data).weight.shape == (1, 1)
    zeros = nn.Linear(1, 1, bias=False)
    zeros.weight.data = torch.zeros(2**15, 2**10)
    small = packed(zeros)
    assert len(small) < 1000
    assert unpacked(small).weight.numel() == 2**25
    # shape (2^15, 2^10) as varints, made (2^20, 2^10)
    bomb = replanned(small, lambda plan: plan.replace(b"\x80\x80\x02\x80\x08", b"\x80\x80\x40\x80\x08"))
    with pytest.raises(PackedError, match="limit"):
        unpacked(bomb)
    text = zlib.compress(b"[" * (HEADER + 10))
    body = FRONT.pack(b"TLIFT002", 1, 0, 0, len(text), 0, 0, 0) + text
    with pytest.raises(PackedError, match="header is larger"):
        unpacked(body + seal(body, None))


def test_the_limit_counts_the_file_the_header_and_every_tensor(tmp_path):
    model = nn.Linear(1000, 1000)
    data = packed(model)
    (tmp_path / "m.tl").write_bytes(data)
    for limit in (1000, len(data) - 1, len(data) + 2000, len(data) + 4_000_000):
        with pytest.raises(PackedError, match="limit"):
            load(tmp_path / "m.tl", limit=limit)
    load(tmp_path / "m.tl", limit=2 * len(data) + 8_000_000)
    assert default_limit(58_000) < 2**29


def test_a_budget_gives_back_what_was_lent():
    budget = Budget(100)
    with budget.lend(60, "a mask"), pytest.raises(PackedError, match="40 bytes"):
        budget.take(50, "a tensor")
    budget.take(100, "a tensor")
    with pytest.raises(PackedError, match="limit"):
        budget.take(1, "another")


def broken(model: nn.Module, change) -> bytes:
    model = copy.deepcopy(model)
    change(model)
    return packed(model)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (nn.LSTM(3, 4), "weight_hh_l0"),
        (nn.GRU(3, 4, 2, bidirectional=True), "bias_ih_l1_reverse"),
        (nn.RNN(3, 4), "weight_ih_l0"),
        (nn.MultiheadAttention(8, 2), "in_proj_weight"),
        (nn.TransformerEncoderLayer(8, 2, 16), "linear1.weight"),
    ],
)
def test_layers_whose_kernels_trust_their_shapes_are_vetted(model, name):
    assert type(unpacked(packed(model))) is type(model)
    weight = model.get_parameter(name)
    for bad in (weight.data[:1], weight.data.double()):
        with pytest.raises(PackedError, match=type(model).__name__):
            unpacked(broken(model, lambda m, bad=bad: setattr(m.get_parameter(name), "data", bad)))


def test_a_layer_that_says_it_is_another_is_refused():
    with pytest.raises(PackedError, match="LSTM"):
        unpacked(broken(nn.GRU(3, 4), lambda m: setattr(m, "mode", "LSTM")))
    with pytest.raises(PackedError, match="size"):
        unpacked(broken(nn.GRU(3, 4), lambda m: setattr(m, "hidden_size", 2**40)))


@pytest.mark.filterwarnings("ignore")
def test_mutated_files_are_refused_or_harmless():
    """A few of what ``benchmarks/packed_fuzz.py --files`` does at length, in this process."""
    from packed_mutations import Mutator

    mutator, counts = Mutator(), collections.Counter()
    for seed in range(800):
        counts[mutator.attempt(seed, 64 * 2**20)] += 1
    assert counts["wrong load"] == 0
    assert counts["refused"] > 600
    assert counts["loaded"] > 20
    assert json.dumps(counts)
