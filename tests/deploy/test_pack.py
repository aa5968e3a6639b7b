"""Packed files: exact, small, and safe to open."""

import hashlib
import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from torchlift.deploy.codecs import DTYPES, PackedError, decode, encode
from torchlift.deploy.packing import MAGIC, load, packed, save, unpacked
from torchlift.deploy.programs import operation
from torchlift.models import GPT, LeNet5, ResNet


def rewritten(data: bytes, change) -> bytes:
    """The file with its header changed and its checksum made right again: what an attacker would write."""
    end = 16 + int.from_bytes(data[8:16], "little")
    header = json.loads(zlib.decompress(data[16:end]))
    change(header)
    text = zlib.compress(json.dumps(header).encode())
    body = MAGIC + len(text).to_bytes(8, "little") + text + data[end:-32]
    return body + hashlib.sha256(body).digest()


def tiny() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_every_dtype_comes_back_bit_for_bit(dtype):
    torch.manual_seed(0)
    kind = DTYPES[dtype]
    for tensor in (torch.randn(7, 5).mul(50).to(kind), torch.zeros(9).to(kind), torch.empty(0, 3).to(kind)):
        codec, streams, sizes = encode(tensor)
        again = decode(codec, streams, sizes, dtype, list(tensor.shape))
        assert again.dtype == kind
        assert torch.equal(again, tensor)


@given(
    density=st.floats(0, 1),
    levels=st.sampled_from([2, 7, 10_000]),
    count=st.integers(1, 3000),
    seed=st.integers(0, 9),
)
@settings(max_examples=25, deadline=None)
def test_encodings_are_exact_and_never_much_larger_than_raw(density, levels, count, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(levels, generator=generator)
    tensor = values[torch.randint(levels, (count,), generator=generator)]
    tensor[torch.rand(count, generator=generator) > density] = 0
    codec, streams, sizes = encode(tensor)
    assert torch.equal(decode(codec, streams, sizes, "float32", [count]), tensor)
    assert sum(map(len, streams)) <= 4 * count + 1


def test_signed_zeros_and_nans_survive():
    tensor = torch.tensor([0.0, -0.0, float("nan"), float("inf")] * 100)
    codec, streams, sizes = encode(tensor)
    assert torch.equal(
        decode(codec, streams, sizes, "float32", [400]).view(torch.int32), tensor.view(torch.int32)
    )


def test_zeros_cost_about_a_bit():
    torch.manual_seed(0)
    weight = torch.randn(1000, 100)
    weight[torch.rand(1000, 100) < 0.95] = 0
    _, streams, _ = encode(weight)
    assert sum(map(len, streams)) < 0.05 * 4 * 100_000 + 100_000 / 8 + 100


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (ResNet(8, 4), torch.randn(2, 3, 16, 16)),
        (GPT(20, 8, 16, 2, 2), torch.randint(20, (2, 8))),
        (nn.Sequential(nn.LSTM(3, 4, batch_first=True)), torch.randn(2, 5, 3)),
    ],
)
def test_models_come_back_whole(model, x, tmp_path):
    model = model.eval()
    size = save(model, tmp_path / "m.tl")
    assert size == (tmp_path / "m.tl").stat().st_size
    again = load(tmp_path / "m.tl")
    assert type(again) is type(model)
    assert list(again.state_dict()) == list(model.state_dict())
    first, second = model(x), again(x)
    assert torch.equal(first[0], second[0])


def test_tied_weights_stay_tied_and_are_stored_once():
    model = GPT(200, 8, 16, 1, 2)
    again = unpacked(packed(model))
    assert again.head.weight is again.token.weight
    assert len(packed(model)) < len(packed(GPT(200, 8, 16, 1, 2, tie=False))) - 200 * 16 * 3


class Mine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.layer(x)).relu().mean((2, 3))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_with_an_example_no_class_is_needed(tmp_path):
    """A fresh process that has never heard of the class runs the model, at another batch size too."""
    model, x = Mine().eval(), torch.randn(2, 1, 6, 6)
    save(model, tmp_path / "m.tl", example=x)
    torch.save((x, model(x).detach()), tmp_path / "xy.pt")
    code = (
        "import sys, torch; from torchlift.deploy import load\n"
        "m = load(sys.argv[1] + '/m.tl'); x, y = torch.load(sys.argv[1] + '/xy.pt')\n"
        "assert torch.equal(m(x), y); assert m(torch.cat([x, x])).shape == (4, 3)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_a_class_that_is_not_there_is_named(tmp_path):
    save(Mine(), tmp_path / "m.tl")
    assert isinstance(load(tmp_path / "m.tl"), Mine)  # alive in this process
    code = "import sys; from torchlift.deploy import load; load(sys.argv[1])"
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m.tl")], capture_output=True, text=True, check=False
    )
    assert run.returncode != 0
    assert "Mine" in run.stderr
    assert "example=x" in run.stderr


def test_every_truncation_and_every_flipped_byte_is_refused():
    data = packed(tiny())
    for end in range(0, len(data), 7):
        with pytest.raises(PackedError):
            unpacked(data[:end])
    for place in range(0, len(data), 5):
        with pytest.raises(PackedError):
            unpacked(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


def test_other_files_and_versions_are_told_apart(tmp_path):
    (tmp_path / "x.tl").write_bytes(b"PK\x03\x04 something else altogether, long enough to have a checksum")
    with pytest.raises(PackedError, match="not a torchlift"):
        load(tmp_path / "x.tl")
    with pytest.raises(PackedError, match="version"):
        unpacked(b"TLIFT999" + packed(tiny())[8:])
    with pytest.raises(PackedError, match="cannot be read"):
        load(tmp_path / "none.tl")


def plant(path: list, value):
    def change(header) -> None:
        at = header
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return change


HOSTILE = {
    "a function for a class": plant(["model", "class"], "os:system"),
    "a class outside": plant(["model", "class"], "subprocess:Popen"),
    "no module class": plant(["model", "class"], "torch.nn.modules.module:register_module_forward_hook"),
    "a shell for an activation": plant(["model", "plain", "f"], {"function": "os:system"}),
    "torch.load for an activation": plant(["model", "plain", "f"], {"function": "torch:load"}),
    "a hook": plant(["model", "plain", "_forward_hooks"], {"dict": []}),
    "a dunder": plant(["model", "plain", "a.b"], 1),
    "a bomb": plant(["tensors", 0, "shape"], [2**30, 2**30]),
    "negative": plant(["tensors", 0, "shape"], [-4, -3]),
    "another shape": plant(["tensors", 0, "shape"], [4, 4]),
    "another dtype": plant(["tensors", 0, "dtype"], "object"),
    "another codec": plant(["tensors", 0, "codec"], "pickle"),
    "a stream outside": plant(["tensors", 0, "streams"], [[10**9, 48]]),
    "a missing tensor": plant(["model", "children", "0", "parameters", "weight"], [99, True]),
    "nothing": plant(["model"], None),
    "a list": plant(["tensors"], {}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_headers_are_refused_and_run_nothing(case, tmp_path, monkeypatch):
    monkeypatch.setattr("os.system", lambda *_: pytest.fail("ran"))
    path = tmp_path / "h.tl"
    path.write_bytes(rewritten(packed(tiny()), HOSTILE[case]))
    with pytest.raises(PackedError):
        load(path)


def test_compression_bombs_are_refused(tmp_path):
    data = rewritten(packed(nn.Linear(3000, 300, bias=False)), lambda header: None)
    path = tmp_path / "b.tl"
    path.write_bytes(data)
    with pytest.raises(PackedError, match="limit"):
        load(path, limit=1000)


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "aten.from_file",
        "aten.add_.Tensor",
        "operator.attrgetter",
        "builtins.eval",
        "aten.__class__",
    ],
)
def test_only_pure_tensor_operations_may_stand_in_a_program(name):
    with pytest.raises(PackedError):
        operation(name)


def test_what_cannot_be_stored_is_named(tmp_path):
    model = tiny()
    model.callback = lambda: None
    with pytest.raises(ValueError, match="callback"):
        save(model, tmp_path / "m.tl")
    assert not Path(tmp_path / "m.tl").exists()


def test_sparse_files_are_small(tmp_path):
    torch.manual_seed(0)
    model = LeNet5()
    dense = save(model, tmp_path / "d.tl")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter[torch.rand_like(parameter) < 0.95] = 0
    assert save(model, tmp_path / "s.tl") < 0.12 * dense
