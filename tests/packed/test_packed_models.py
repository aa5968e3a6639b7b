"""Models come back whole from packed files, with their records; what a file cannot hold is named."""

import copy
import hashlib
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import torchlift as tl
from forked import python
from torchlift import stored
from torchlift.core import store
from torchlift.deploy import load, save
from torchlift.errors import TorchliftError
from torchlift.models import GPT, MLP, LeNet5, ResNet


def tiny() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()


def first(value):
    return value[0] if isinstance(value, tuple) else value


ENCODER = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, nn.LayerNorm(8))
PLAIN = {
    "resnet": (ResNet(8, 4), torch.randn(2, 3, 16, 16)),
    "lenet": (LeNet5(), torch.randn(2, 3, 32, 32)),
    "mlp": (MLP(4, 5, 3), torch.randn(2, 4)),
    "lstm": (nn.Sequential(nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True)), torch.randn(2, 5, 3)),
    "gru": (nn.GRU(3, 4), torch.randn(5, 2, 3)),
    "encoder": (ENCODER, torch.randn(2, 5, 8)),
    "half": (tiny().bfloat16(), torch.randn(2, 3).bfloat16()),
    "padding": (
        nn.Sequential(
            nn.ZeroPad2d(1),
            nn.Upsample(scale_factor=2),
            nn.AdaptiveAvgPool2d((2, 3)),
            nn.Unflatten(1, (1, 3)),
            nn.Flatten(),
        ),
        torch.randn(2, 3, 5, 5),
    ),
    "conv": (
        nn.Sequential(
            nn.Conv1d(3, 4, 3, padding="same", padding_mode="circular", bias=False),
            nn.GroupNorm(2, 4),
            nn.PReLU(),
            nn.ConvTranspose1d(4, 2, 2, 2),
        ),
        torch.randn(2, 3, 7),
    ),
    "norms": (
        nn.Sequential(
            nn.BatchNorm1d(4, momentum=None),
            nn.BatchNorm1d(4, affine=False, track_running_stats=False),
            nn.RMSNorm(4),
            nn.LayerNorm(4, bias=False),
        ),
        torch.randn(3, 4),
    ),
}


@pytest.mark.parametrize("name", PLAIN)
def test_models_of_listed_layers_come_back_whole(name, tmp_path):
    model, x = PLAIN[name]
    model = model.eval()
    saved = save(model, tmp_path / "m.tl")
    assert saved == (tmp_path / "m.tl").stat().st_size
    assert not saved.needs_model
    again = load(tmp_path / "m.tl")
    assert type(again) is type(model)
    assert list(again.state_dict()) == list(model.state_dict())
    assert torch.equal(first(model(x)), first(again(x)))
    assert torch.equal(first(model(x)), first(copy.deepcopy(again)(x)))
    save(again, tmp_path / "again.tl")  # the guard of the first call is no hook of the user's


def test_ties_shared_modules_frozen_weights_and_layouts_come_back(tmp_path):
    shared, tied = nn.Linear(4, 4), nn.Linear(4, 4)
    tied.weight = shared.weight
    model = nn.Sequential(shared, nn.ReLU(), shared, tied, nn.Unflatten(1, (4, 1, 1)), nn.Conv2d(4, 2, 1))
    model[5].weight.data = torch.randn(2, 4, 3, 3).contiguous(memory_format=torch.channels_last)[:, :, :1, :1]
    model[5].weight.data = model[5].weight.data.contiguous(memory_format=torch.channels_last)
    shared.bias.requires_grad_(False)
    save(model, tmp_path / "m.tl")
    again = load(tmp_path / "m.tl")
    assert again[0] is again[2]
    assert again[3].weight is again[0].weight
    assert [p.requires_grad for p in again.parameters()] == [p.requires_grad for p in model.parameters()]
    x = torch.randn(2, 4)
    assert torch.equal(again(x), model(x))


def quantized(model: nn.Module) -> nn.Module:
    for name, weight in list(model.named_parameters()):
        if weight.ndim > 1:
            step = weight.detach().abs().flatten(1).amax(1).reshape(-1, *[1] * (weight.ndim - 1)) / 7
            store(model, name, step=step, levels=(weight.detach() / step).round())
            store(model, name, kept=weight.detach() != 0)
    return model


@pytest.mark.parametrize("make", [LeNet5, lambda: GPT(20, 8, 16, 1, 2)])
def test_records_come_back_and_the_file_is_at_their_entropy(make, tmp_path):
    torch.manual_seed(0)
    model = quantized(make())
    size = save(model, tmp_path / "m.tl")
    before = stored(model)
    assert before
    again = load(tmp_path / "m.tl", into=make())
    after = stored(again)
    assert list(before) == list(after)
    for name, record in before.items():
        other = after[name]
        for a, b in ((record.levels, other.levels), (record.step, other.step), (record.kept, other.kept)):
            assert a is b is None or (a.dtype == b.dtype and torch.equal(a, b))
    measured = tl.deploy.measure(
        model, torch.randint(20, (1, 8)) if make is not LeNet5 else torch.randn(1, 3, 32, 32), repeats=1
    )
    assert measured.bound_bytes <= measured.file_bytes == size <= 1.02 * measured.bound_bytes + 2048


class Mine(nn.Module):
    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.width = width
        self.layer = nn.Conv2d(1, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.depthwise = nn.Conv2d(width, width, 3, groups=width)
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.depthwise(self.norm(self.layer(x)).relu()).mean((2, 3)))


def test_own_classes_are_loaded_into_an_instance(tmp_path):
    model, x = Mine().eval(), torch.randn(2, 1, 6, 6)
    saved = save(model, tmp_path / "m.tl")
    assert "Mine" in saved.needs_model
    with pytest.raises(TorchliftError, match=r"Mine.*into="):
        load(tmp_path / "m.tl")
    instance = Mine()
    assert load(tmp_path / "m.tl", into=instance) is instance
    assert torch.equal(instance(x), model(x))


def test_an_instance_takes_the_widths_of_the_file(tmp_path):
    model, x = Mine().eval(), torch.randn(2, 1, 6, 6)
    small = tl.deploy.prune(model, x, 0.5).eval()
    assert small.layer.out_channels < 6
    save(small, tmp_path / "m.tl")
    again = load(tmp_path / "m.tl", into=Mine())
    assert torch.equal(again(x), small(x))
    assert (again.layer.out_channels, again.depthwise.groups) == (
        small.layer.out_channels,
        small.depthwise.groups,
    )
    save(model, tmp_path / "wide.tl")
    with pytest.raises(TorchliftError, match="at least as wide"):
        load(tmp_path / "wide.tl", into=Mine(4))


def test_names_of_an_instance_must_be_those_of_the_file(tmp_path):
    save(Mine(), tmp_path / "m.tl")
    with pytest.raises(TorchliftError, match=r"into= has no 'depthwise"):
        load(tmp_path / "m.tl", into=LessMine())
    other = Mine()
    other.more = nn.Linear(1, 1)
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(TorchliftError, match=r"file has no 'more"):
        load(tmp_path / "m.tl", into=other)
    assert all(torch.equal(before[name], value) for name, value in other.state_dict().items())


class LessMine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.head = nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.Linear(6, 2)


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).double())


class OwnLSTM(nn.LSTM):
    pass


class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
        self.layers = nn.ModuleDict({"a b": nn.Linear(3, 3)})
        self.scale = nn.ParameterList([torch.ones(3)])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers["a b"](self.inner(x)) * self.scale[0]


@pytest.mark.parametrize(
    ("make", "x"),
    [
        (Mixed, torch.randn(2, 4)),
        (lambda: OwnLSTM(3, 4), torch.randn(5, 2, 3)),
        (lambda: nn.utils.parametrizations.weight_norm(nn.LSTM(3, 4), "weight_hh_l0"), torch.randn(5, 2, 3)),
        (Wrapped, torch.randn(2, 4)),
        (lambda: nn.Sequential(nn.Linear(3, 3, dtype=torch.cfloat)), torch.randn(2, 3, dtype=torch.cfloat)),
    ],
)
def test_odd_models_are_loaded_into_an_instance(make, x, tmp_path):
    model = make().eval()
    save(model, tmp_path / "m.tl")
    again = load(tmp_path / "m.tl", into=make())
    assert torch.equal(first(again(x)), first(model(x)))


def hooked() -> nn.Module:
    model = tiny()
    model[0].register_forward_hook(lambda module, inputs, out: out * 2)
    return model


def test_hooks_raise_unless_an_instance_has_them(tmp_path):
    model, x = hooked(), torch.randn(2, 3)
    with pytest.raises(TorchliftError, match=r"forward hook.*into=") as caught:
        save(model, tmp_path / "m.tl")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "m.tl").exists()
    save(model, tmp_path / "m.tl", into=hooked())
    with pytest.raises(TorchliftError, match="into="):
        load(tmp_path / "m.tl")
    assert torch.equal(load(tmp_path / "m.tl", into=hooked())(x), model(x))


def test_attributes_of_ones_own_need_an_instance(tmp_path):
    model = tiny()
    model.callback = lambda: None
    assert "callback" in save(model, tmp_path / "m.tl").needs_model
    model = tiny()
    model[0].in_features = 7
    assert "0 (Linear)" in save(model, tmp_path / "m.tl").needs_model


def test_what_is_no_plain_tensor_is_named(tmp_path):
    class Extra(nn.Linear):
        def get_extra_state(self):
            return "x"

    for model, what in (
        (Extra(2, 2), "_extra_state"),
        (nn.LazyLinear(3), "weight"),
        (nn.Linear(2, 2, device="meta"), "meta"),
        (3, "module"),
    ):
        with pytest.raises(TorchliftError, match=what):
            save(model, tmp_path / "m.tl")
    assert not list(tmp_path.iterdir())


def test_digests_and_keys_say_which_file_it_is_and_who_wrote_it(tmp_path):
    saved = save(tiny(), tmp_path / "plain.tl")
    assert saved.digest == hashlib.sha256((tmp_path / "plain.tl").read_bytes()).hexdigest()
    load(tmp_path / "plain.tl", digest=saved.digest.upper())
    with pytest.raises(TorchliftError, match="digest"):
        load(tmp_path / "plain.tl", digest=save(tiny(), tmp_path / "other.tl").digest)
    save(tiny(), tmp_path / "sealed.tl", key=b"ours")
    load(tmp_path / "sealed.tl", key=b"ours")
    for name, key, why in [
        ("sealed", b"theirs", "another key"),
        ("sealed", None, "pass load"),
        ("plain", b"ours", "not sealed"),
    ]:
        with pytest.raises(TorchliftError, match=why):
            load(tmp_path / f"{name}.tl", key=key)
    forged = bytearray((tmp_path / "sealed.tl").read_bytes())
    forged[-32:] = hashlib.sha256(forged[:-32]).digest()
    (tmp_path / "sealed.tl").write_bytes(forged)
    with pytest.raises(TorchliftError, match="seal"):
        load(tmp_path / "sealed.tl", key=b"ours")
    for run in (
        lambda: save(tiny(), tmp_path / "e.tl", key=b""),
        lambda: load(tmp_path / "plain.tl", key=b""),
    ):
        with pytest.raises(TorchliftError, match="at least one byte"):
            run()
    with pytest.raises(TorchliftError, match="not text"):
        load(tmp_path / "plain.tl", digest=b"")


def test_a_card_stands_in_the_header(tmp_path):
    save(tiny(), tmp_path / "m.tl", card={"output": {"classes": ["a", "b"]}})
    x = torch.randn(2, 3)
    assert tl.predict(tmp_path / "m.tl", x).classes == ["a", "b"]
    save(tiny(), tmp_path / "m.tl")
    assert tl.predict(tmp_path / "m.tl", x).classes == ["0", "1"]
    with pytest.raises(TorchliftError, match="card"):
        save(tiny(), tmp_path / "m.tl", card={"x": object()})


def test_a_model_is_not_changed_by_saving(tmp_path):
    model = LeNet5()
    before = copy.deepcopy(model.state_dict())
    save(model, tmp_path / "m.tl")
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("how", ["grid", pytest.param("floats", marks=pytest.mark.fuzz)])
def test_loading_peaks_at_little_more_than_it_returns(how, tmp_path):
    """64 MiB of weights under a limit of 100 MiB; reading them takes 1.2 times as much."""
    layer = nn.Linear(4096, 4096, bias=False)
    with torch.no_grad():
        if how == "grid":
            layer.weight.copy_(torch.randint(0, 3, (4096, 4096)))
        else:
            layer.weight.normal_()
    save(layer, tmp_path / "m.tl")
    code = (
        "import sys; from pathlib import Path; from torch import nn\n"
        "from torchlift.deploy import load, save\n"
        "def peak():\n"
        "    lines = Path('/proc/self/status').read_text().splitlines()\n"
        "    return next(int(line.split()[1]) for line in lines if line.startswith('VmHWM'))\n"
        "save(nn.Linear(2, 2), sys.argv[1] + '.small'); load(sys.argv[1] + '.small')\n"
        "before = peak()\n"
        "load(sys.argv[1], limit=100 * 2**20)\n"
        "print(1024 * (peak() - before))"
    )
    run = python("-c", code, str(tmp_path / "m.tl"))
    assert 60 * 2**20 < int(run.stdout) <= 1.2 * 64 * 2**20
    with pytest.raises(TorchliftError, match="limit"):
        load(tmp_path / "m.tl", limit=63 * 2**20)
