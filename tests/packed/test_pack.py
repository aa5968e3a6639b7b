"""Packed files: whole, and safe to open."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from torchlift.deploy import measure, register
from torchlift.models import GPT, LeNet5, ResNet
from torchlift.packed.budget import PackedError
from torchlift.packed.file import load, packed, save
from torchlift.packed.unpacking import unpacked

FIXTURES = Path(__file__).parent / "fixtures"


def tiny() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()


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
    assert isinstance(load(tmp_path / "m.tl", classes=[Mine]), Mine)
    with pytest.raises(PackedError, match=r"Mine.*classes"):  # alive in this process, but nobody has named it
        load(tmp_path / "m.tl")
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


def test_registered_classes_are_known_from_then_on(tmp_path):
    class Own(nn.Linear):
        pass

    save(Own(2, 3), tmp_path / "m.tl")
    with pytest.raises(PackedError, match="Own"):
        load(tmp_path / "m.tl")
    register(Own)
    assert type(load(tmp_path / "m.tl")) is Own
    with pytest.raises(PackedError, match="module classes"):
        register(int)


@pytest.mark.parametrize("name", sorted(path.stem for path in FIXTURES.glob("*.tl")))
def test_files_of_earlier_versions_still_load(name):
    """Written by the first version, or by the first coder, with the weights, an input and the output then."""
    known = load_file(FIXTURES / f"{name}.safetensors")
    model = load(FIXTURES / f"{name}.tl")
    weights = {key.removeprefix("state."): value for key, value in known.items() if key.startswith("state.")}
    found = model.state_dict()
    if "graph" not in name:  # a graph has its own names for the same weights
        assert all(torch.equal(found[key], value) for key, value in weights.items())
    y = model(known["x"])
    torch.testing.assert_close(y[0] if isinstance(y, tuple) else y, known["y"], atol=1e-6, rtol=1e-5)


def test_digests_say_which_file_it_is(tmp_path):
    saved = save(tiny(), tmp_path / "m.tl")
    assert saved.digest == hashlib.sha256((tmp_path / "m.tl").read_bytes()).hexdigest()
    load(tmp_path / "m.tl", digest=saved.digest.upper())
    other = save(tiny(), tmp_path / "other.tl")
    with pytest.raises(PackedError, match="digest"):
        load(tmp_path / "m.tl", digest=other.digest)


def test_keys_say_who_wrote_it(tmp_path):
    save(tiny(), tmp_path / "plain.tl")
    save(tiny(), tmp_path / "sealed.tl", key=b"ours")
    load(tmp_path / "sealed.tl", key=b"ours")
    for name, key, why in [
        ("sealed", b"theirs", "another key"),
        ("sealed", None, "pass load"),
        ("plain", b"ours", "not sealed"),
    ]:
        with pytest.raises(PackedError, match=why):
            load(tmp_path / f"{name}.tl", key=key)
    forged = bytearray((tmp_path / "sealed.tl").read_bytes())
    forged[-32:] = hashlib.sha256(forged[:-32]).digest()
    (tmp_path / "sealed.tl").write_bytes(forged)
    with pytest.raises(PackedError, match="seal"):
        load(tmp_path / "sealed.tl", key=b"ours")
    with pytest.raises(PackedError, match="key"):
        load(FIXTURES / "v1-dense.tl", key=b"ours")


def test_saving_with_an_example_leaves_every_mode_as_it_was(tmp_path):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).train()
    model[1].eval()
    save(model, tmp_path / "m.tl", example=torch.randn(2, 3))
    assert [module.training for module in model.modules()] == [True, True, False, True]


def test_weights_that_share_memory_are_stored_once_and_tied_again():
    first, second = nn.Linear(64, 64), nn.Linear(64, 64)
    second.weight = nn.Parameter(first.weight.data)
    model = nn.Sequential(first, second)
    assert len(packed(model)) < len(packed(first)) + 600
    again = unpacked(packed(model))
    assert again[0].weight.data_ptr() == again[1].weight.data_ptr()


transformers = pytest.importorskip("transformers")


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=16, bos_token_id=1, eos_token_id=1
    )
    return transformers.GPT2LMHeadModel(config)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_gpt2_is_measured_and_saved_after_training(tmp_path):
    torch.manual_seed(0)
    model, ids = gpt2(), torch.randint(0, 50, (4, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(ids, labels=ids).loss.backward()
        optimizer.step()
    assert measure(model, ids, repeats=1).file_bytes == save(model, tmp_path / "m.tl")
    again = load(tmp_path / "m.tl")
    assert again.lm_head.weight is again.transformer.wte.weight
    assert torch.equal(again(ids).logits, model.eval()(ids).logits)


@pytest.mark.filterwarnings("ignore")
def test_fit_writes_a_gpt2_to_its_folder(tmp_path):
    import torchlift as tl

    ids = torch.randint(0, 50, (8, 8))
    task = tl.Task(gpt2(), lambda model, batch: model(batch[0], labels=batch[0]).loss)
    result = tl.fit(task, (ids, ids), epochs=1, out=tmp_path / "run", progress=False)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["after"]["file_bytes"] > 0
    load(result.save(tmp_path / "m.tl"))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_reading_a_file_needs_no_more_memory_than_its_limit(tmp_path):
    """A process that reads a file of 64 MiB of weights under a limit of 100 MiB, and another that is
    refused."""
    weight = torch.randint(0, 3, (4096, 4096)).float()
    layer = nn.Linear(4096, 4096, bias=False)
    layer.weight.data = weight
    size = save(layer, tmp_path / "m.tl")
    assert size < weight.numel() / 4
    code = (
        "import sys; from pathlib import Path; from torchlift.deploy import load\n"
        "from torchlift.packed.file import packed, unpacked; from torch import nn\n"
        "def peak():\n"
        "    lines = Path('/proc/self/status').read_text().splitlines()\n"
        "    return next(int(line.split()[1]) for line in lines if line.startswith('VmHWM'))\n"
        "unpacked(packed(nn.Linear(2, 2)))\n"
        "before = peak()\n"
        "load(sys.argv[1], limit=100 * 2**20)\n"
        "print(1024 * (peak() - before))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m.tl")],
        capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert 60 * 2**20 < int(run.stdout) <= 100 * 2**20
    with pytest.raises(PackedError, match="limit"):
        load(tmp_path / "m.tl", limit=66 * 2**20)
