"""Files that want to hurt: an error of one line, running nothing, when loaded and when first called."""

import io
import os

import pytest
import torch
from torch import nn

from forging import assembled, plant, replanned, rewritten
from torchlift.deploy import load
from torchlift.packed.budget import Budget, PackedError, bounded_product, default_limit
from torchlift.packed.file import FRONT, Opened, packed
from torchlift.packed.layers import build
from torchlift.packed.sealing import SIZE, seal
from torchlift.packed.tensors import Item


def tiny() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()


def opened(data: bytes, limit: int = 64 * 2**20) -> nn.Module:
    return Opened(io.BytesIO(data), len(data), Budget(limit, 2**16 + len(data)), None).model()


KIND, FIRST = ["tree", "kind"], ["tree", "children", "0"]
HOSTILE = {
    "a function for a class": plant(KIND, "os:system"),
    "a class outside": plant(KIND, "subprocess:Popen"),
    "a base class": plant(KIND, "Module"),
    "data parallel": plant(KIND, "DataParallel"),
    "our sparse layer": plant([*FIRST, "kind"], "torchlift.SparseLinear"),
    "no kind": plant(KIND, 3),
    "a hook": plant([*FIRST, "_forward_hooks"], {}),
    "an argument that is none": plant([*FIRST, "args", "__class__"], 1),
    "a device": plant([*FIRST, "args", "device"], "cuda"),
    "a size that is none": plant([*FIRST, "args", "in_features"], -3),
    "a size that is too large": plant([*FIRST, "args", "in_features"], 2**40),
    "a truth value for a size": plant([*FIRST, "args", "in_features"], True),
    "another size": plant([*FIRST, "args", "in_features"], 4),
    "children of a layer": plant([*FIRST, "children"], {"0": {"kind": "ReLU"}}),
    "a child with a method's name": plant(["tree", "children", "forward"], {"kind": "ReLU"}),
    "a child with a dot": plant(["tree", "children", "a.b"], {"kind": "ReLU"}),
    "itself": plant(FIRST, {"same": 0}),
    "a later module": plant(FIRST, {"same": 7}),
    "nothing": plant(["tree"], None),
    "a list": plant(["tree"], []),
    "two ways": plant(["names"], ["x"]),
    "an unknown key": plant(["code"], "print(1)"),
    "a configuration": plant(["config"], {"backbone": "host.example/model", "use_pretrained_backbone": True}),
    "a pretrained model": plant(KIND, "transformers.BertForSequenceClassification"),
    "an argument of a configuration": plant([*FIRST, "args", "num_labels"], 2**30),
    "an order of others": plant(["order"], [0, 1, 2, 9]),
    "an order too short": plant(["order"], [0]),
    "frozen tensors that are not there": plant(["frozen"], [-1]),
    "channels of a vector": plant(["last"], [1]),
    "a card that is none": plant(["card"], [1]),
    "sizes that are not a table": plant(["sizes"], 3),
    "sizes of no module": plant(["sizes"], {"0": 3}),
    "a size in words": plant(["sizes"], {"0": {"heads": "2"}}),
    "a truth value among sizes": plant(["sizes"], {"0": {"heads": True}}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_headers_raise_one_line(case, tmp_path):
    path = tmp_path / "h.tl"
    path.write_bytes(rewritten(packed(tiny())[0], HOSTILE[case]))
    with pytest.raises(PackedError) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_messages_print_no_characters_that_a_file_chose(tmp_path):
    path = tmp_path / "h.tl"
    path.write_bytes(rewritten(packed(tiny())[0], plant(KIND, "\x1b[2J\r\n\u202e" + "x" * 10_000)))
    with pytest.raises(PackedError) as caught:
        load(path)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


def lstm(change) -> bytes:
    return rewritten(packed(nn.LSTM(3, 4))[0], change)


def test_recurrent_weights_must_be_those_of_the_sizes():
    for change in (
        plant(["tree", "args", "hidden_size"], 5),
        plant(["tree", "args", "num_layers"], 2),
        plant(["tree", "args", "_flat_weights_names"], ["weight_ih_l0"] * 4),
        plant(["order"], [0, 0, 1, 2]),
    ):
        with pytest.raises(PackedError):
            opened(lstm(change))


def tree(*layers) -> dict:
    nodes = [{"kind": kind, "args": arguments} for kind, arguments in layers]
    return {"tree": {"kind": "Sequential", "children": {str(n): node for n, node in enumerate(nodes)}}}


def test_weights_do_not_go_into_a_layer_that_trusts_its_indices(tmp_path):
    """Wild column indices would read foreign memory at the first call."""
    from torchlift.channels.sparse_linear import SparseLinear

    layer = SparseLinear(nn.Linear(4, 4))
    wild = {"columns": 10**9}
    items = [Item(value + wild.get(name, 0)) for name, value in layer.state_dict().items()]
    (tmp_path / "m.tl").write_bytes(assembled({"names": list(layer.state_dict()), "why": ""}, items))
    with pytest.raises(PackedError, match="SparseLinear"):
        load(tmp_path / "m.tl", into=layer)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN", "LSTMCell", "TransformerEncoderLayer"])
def test_layers_are_made_without_memory(kind):
    sizes = {"input_size": 2**20, "hidden_size": 2**20}
    if kind == "TransformerEncoderLayer":
        sizes = {"d_model": 2**20, "nhead": 2}
    assert all(tensor.is_meta for tensor in build(kind, sizes).parameters())


LARGE = {
    "Upsample": [("Upsample", {"scale_factor": 4000})],
    "Upsample to a size": [("Upsample", {"size": [60_000, 60_000]})],
    "ZeroPad": [("ZeroPad2d", {"padding": [30_000] * 4})],
    "AdaptivePool": [("AdaptiveAvgPool2d", {"output_size": 60_000})],
    "small steps": [("Upsample", {"scale_factor": 8})] * 6,
    "circular padding": [("ReplicationPad2d", {"padding": [20_000] * 4})],
}


@pytest.mark.parametrize("case", LARGE)
def test_the_first_call_is_within_the_limit(case):
    model = opened(assembled(tree(*LARGE[case]), []))
    with pytest.raises(PackedError, match="first call"):
        model(torch.zeros(1, 1, 8, 8))


def test_a_call_that_fails_is_not_the_first():
    """Upsampling takes no matrices; maps that come then are tried all the same."""
    model = opened(assembled(tree(("Upsample", {"scale_factor": 4000})), []))
    with pytest.raises(NotImplementedError):
        model(torch.zeros(2, 4))
    with pytest.raises(PackedError, match="first call"):
        model(torch.zeros(1, 1, 8, 8))


def test_the_first_call_is_within_its_time():
    """A layer of 2,048 units that is called ten thousand times, in 700 bytes."""
    node: dict = {
        "kind": "Sequential",
        "children": {"0": {"kind": "Linear", "args": {"in_features": 2048, "out_features": 2048}}},
    }
    for level in range(4):
        again = {str(n): {"same": 4 - level} for n in range(1, 9)}
        node = {"kind": "Sequential", "children": {"0": node, **again}}
    data = assembled({"tree": node}, [Item(torch.zeros(2048, 2048)), Item(torch.zeros(2048))])
    model = opened(data)
    assert len(data) < 1500
    with pytest.raises(PackedError, match=r"too long|more than"):
        model(torch.zeros(1, 2048))


def test_shared_modules_do_not_make_endless_paths():
    node: dict = {"kind": "Sequential", "children": {}}
    for level in range(60):
        node = {"kind": "Sequential", "children": {"a": node, "b": {"same": 60 - level}}}
    with pytest.raises(PackedError, match="modules"):
        opened(assembled({"tree": node}, []))


def test_modules_are_neither_endlessly_deep_nor_uncounted():
    node: dict = {"kind": "Sequential", "children": {}}
    for _ in range(300):
        node = {"kind": "Sequential", "children": {"a": node}}
    with pytest.raises(PackedError, match="deep"):
        opened(assembled({"tree": node}, []))
    wide = {"kind": "Sequential", "children": {str(n): {"kind": "ReLU"} for n in range(5000)}}
    with pytest.raises(PackedError, match="limit"):
        opened(assembled({"tree": wide}, []), 2**24)


def test_a_small_file_cannot_ask_for_much_memory(tmp_path):
    data = assembled(tree(("Linear", {"in_features": 2**20, "out_features": 4000, "bias": False})), [])
    with pytest.raises(PackedError, match="tensors"):
        opened(data)
    huge = replanned(
        packed(nn.Linear(3, 3, bias=False))[0],
        lambda plan: plan.replace(b"\x02\x03\x03", b"\x02\xff\xff\xff\x7f\xff\x7f"),
    )
    with pytest.raises(PackedError):
        opened(huge)
    text = rewritten(packed(tiny())[0], plant(["why"], "x" * 10**7))
    assert len(text) < 20_000
    with pytest.raises(PackedError, match="header"):
        opened(text)


def test_every_truncation_and_every_flipped_byte_raises():
    data = packed(tiny())[0]
    for end in range(0, len(data), 7):
        with pytest.raises(PackedError):
            opened(data[:end])
    for offset in range(0, len(data), 5):
        with pytest.raises(PackedError):
            opened(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])


def test_other_files_devices_and_versions_are_told_apart(tmp_path):
    (tmp_path / "x.tl").write_bytes(b"PK\x03\x04 something else altogether, long enough to have a checksum")
    with pytest.raises(PackedError, match="not a torchlift"):
        load(tmp_path / "x.tl")
    (tmp_path / "v.tl").write_bytes(b"TLIFT999" + packed(tiny())[0][8:])
    with pytest.raises(PackedError, match="format"):
        load(tmp_path / "v.tl")
    with pytest.raises(PackedError, match="cannot be read"):
        load(tmp_path / "none.tl")
    with pytest.raises(PackedError, match="regular"):
        load("/dev/zero")
    os.mkfifo(tmp_path / "pipe.tl")
    with pytest.raises(PackedError, match="regular"):
        load(tmp_path / "pipe.tl")


def test_bytes_between_and_after_the_parts_raise():
    data = packed(tiny())[0]
    body = data[:-SIZE] + b"more"
    with pytest.raises(PackedError, match="after the last stream"):
        opened(body + seal(body, None))
    fields = list(FRONT.unpack_from(data))
    fields[4] += 1
    body = FRONT.pack(*fields) + data[FRONT.size : -SIZE]
    with pytest.raises(PackedError, match="plan"):
        opened(body + seal(body, None))


def test_limits_are_counted():
    assert default_limit(0) == 256 * 2**20
    assert bounded_product([3, 0, 2**40]) == 0
    with pytest.raises(PackedError, match="entries"):
        bounded_product([2**30, 2**30])
    with pytest.raises(PackedError, match="not a list"):
        bounded_product([-1])


@pytest.mark.parametrize("kind", ["mutated", "composed"])
def test_hundreds_of_hostile_files_do_no_harm(kind):
    """In a process of its own with little memory: no crash, no hang, no socket, no write, no wrong load."""
    from packed_fuzz import LIMIT, SLACK, apart, try_files
    from packed_mutations import Composer, Mutator

    one = Mutator() if kind == "mutated" else Composer()
    one(0, LIMIT)
    ended = apart(lambda note: try_files(one, range(250), note))
    assert "counts" in ended, ended
    assert not ended["touched"]
    assert not any("wrong" in said for said in ended["counts"])
    assert ended["grown"] <= LIMIT + SLACK
