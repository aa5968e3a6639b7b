"""``tl.compress`` as it is called: targets, records, cuts, files, and what it says to bad input."""

import copy
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

import torchlift as tl
from any_models import ANY, any_model
from forked import python
from torchlift.channels.folding import fold_norms
from torchlift.compress.calibration import Calibration
from torchlift.compress.distance import output_error
from torchlift.compress.grid import short
from torchlift.compress.journal import StepJournal
from torchlift.compress.moving import Pull
from torchlift.errors import CheckpointError, DataError, TorchliftError
from torchlift.tree import each


def image_net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1, bias=False),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.Conv2d(12, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    model[1].running_mean.normal_()
    model[1].running_var.uniform_(0.5, 2)
    return model.eval()


def images(count: int = 64) -> Tensor:
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def compress(model: nn.Module, data: Any, **options: Any) -> tl.Compressed:
    return tl.compress(model, data, progress=False, **options)


def rounded(model: nn.Module, bits: int) -> nn.Module:
    """Every row to its nearest of 2^bits − 1 values up to its largest."""
    model, top = copy.deepcopy(model), 2 ** (bits - 1) - 1
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim > 1:
                step = p.flatten(1).abs().amax(1).reshape(-1, *[1] * (p.ndim - 1)) / top
                p.copy_(step * (p / step).round())
    return model


def test_bits_are_recorded_and_better_than_rounding() -> None:
    model, x = image_net(), images()
    before = copy.deepcopy(model.state_dict())
    errors = {bits: compress(model, x, bits=bits) for bits in (3, 4)}
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    for bits, small in errors.items():
        records = tl.stored(small.model)
        assert set(records) == {n for n, p in small.model.named_parameters() if p.ndim > 1}
        assert all(record.bits is not None and record.bits <= bits for record in records.values())
        assert small.error == pytest.approx(output_error(model, small.model, [(x,)]), rel=1e-3)
        assert small.error < 0.5 * output_error(model, rounded(model, bits), [(x,)])
    assert errors[3].bytes < errors[4].bytes < tl.deploy.measure(model, x[:1], repeats=1).file_bytes


@pytest.mark.parametrize("samples", [8, 64])
@pytest.mark.parametrize("bits", [8, 4, 3, 2])
def test_inputs_never_seen_are_no_worse_than_with_rounding(samples: int, bits: int) -> None:
    """However few samples there are: the pull to the weights that were trained holds what they do not say."""
    model, unseen = image_net(), torch.randn(256, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    small = compress(model, images(samples), bits=bits).model
    plain = rounded(fold_norms(model, (unseen[:2],)), bits)
    assert output_error(model, small, [(unseen,)]) < output_error(model, plain, [(unseen,)])


@pytest.mark.parametrize(("ratio", "width"), [(0.1, 20), (0.3, 16), (0.5, 12), (0.9, 2)])
def test_widths_are_multiples_where_one_is_near(ratio: float, width: int) -> None:
    """20, 15, 11 and 2 of 22 are left by the ratio alone."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 22), nn.ReLU(), nn.Linear(22, 3)).eval()
    small = compress(model, torch.randn(64, 6), ratio=ratio)
    assert small.model[0].out_features == width


def test_channels_go_and_readers_make_up_for_them() -> None:
    model, x = image_net(), images()
    small = compress(model, x, ratio=0.25)
    assert [m.weight.shape[0] for m in small.model.modules() if hasattr(m, "weight")] == [8, 12, 10]
    plain = tl.deploy.prune(model, x[:2], 0.25, round_to=4)
    assert small.error < 0.5 * output_error(model, plain, [(x,)])
    assert small.card["achieved"]["parameters"] == sum(p.numel() for p in small.model.parameters())


def test_cut_and_quantized_within_bytes() -> None:
    model, x = image_net(), images(32)
    small = compress(model, x, bytes=1500)
    assert small.bytes <= 1500
    assert len({row.bits for row in small.rows}) >= 1
    with pytest.raises(TorchliftError, match=r"bytes=200 is not possible: the least"):
        compress(model, x, bytes=200)


@pytest.mark.parametrize("limit", [2200, 2700, 3300])
def test_bytes_are_used(limit: int) -> None:
    """Whatever the file holds beside the weights."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 96), nn.ReLU(), nn.Linear(96, 32), nn.ReLU(), nn.Linear(32, 4)).eval()
    small = compress(model, torch.randn(64, 8), bytes=limit).bytes
    assert 0.85 * limit < small <= limit


def test_bytes_are_those_of_norms_as_they_are_written() -> None:
    """Plain norms of a user's class take fewer bytes than those that the sweep runs with."""
    torch.manual_seed(0)
    model, x = Normed().eval(), images()
    size = compress(model, x, bits=3).bytes
    assert 0.85 * size < compress(model, x, bytes=size).bytes <= size


def test_polishing_keeps_to_the_bytes() -> None:
    assert compress(image_net(), images(32), bytes=1500, polish=3).bytes <= 1500


def test_without_a_target_outputs_stay_within_a_percent() -> None:
    model, x = image_net(), images()
    small = compress(model, x)
    assert small.error <= 1e-4
    assert small.bytes < 0.5 * small.card["before"]["bytes"]


def test_macs_are_met_and_the_least_is_named() -> None:
    model, x = image_net(), images(32)
    small = compress(model, x, macs=60_000)
    assert small.card["achieved"]["macs"] <= 60_000
    with pytest.raises(
        TorchliftError, match=r"macs=10 is not possible: the least that this network allows is \d+"
    ):
        compress(model, x, macs=10)


def test_mask_and_grid() -> None:
    small = compress(image_net(), images(), bits=4, sparsity=0.5)
    for record in tl.stored(small.model).values():
        assert record.kept is not None
        assert float(record.kept.float().mean()) == pytest.approx(0.5, abs=0.1)
    masked = compress(image_net(), images(), sparsity=0.5)
    assert masked.error < small.error


def test_what_stays_float_takes_half_where_outputs_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = image_net(), images()
    small = compress(model, x, bits=4, keep="7")
    for name, value in small.model.state_dict().items():
        if value.ndim < 2 and value.is_floating_point():
            assert torch.equal(value, short(value)) == (not name.startswith("7."))
    step = tl.stored(small.model)["3.weight"].step
    assert step is not None
    assert torch.equal(step, short(step))
    monkeypatch.setattr("torchlift.compress.planning.SHORTENED", 0.0)
    whole = compress(model, x, bits=4, keep="7")
    assert not torch.equal(whole.model[3].bias, short(whole.model[3].bias))
    assert small.bytes < whole.bytes - 1.5 * (12 + 16)
    assert small.error == pytest.approx(whole.error, rel=0.05)


def test_groups_of_columns_share_a_step() -> None:
    model = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    small = compress(model, torch.randn(64, 64), bits=4, group=32)
    steps = [record.step for record in tl.stored(small.model).values()]
    assert [tuple(step.shape) for step in steps if step is not None] == [(8, 2), (3, 1)]


def test_polishing_stays_on_the_grid_and_comes_nearer() -> None:
    model, x = image_net(), images(256)
    cut, tuned = (compress(model, x, ratio=0.5, polish=epochs) for epochs in (0, 20))
    assert tuned.error < cut.error
    plain, polished = (compress(model, x, bits=2, polish=epochs) for epochs in (0, 20))
    assert polished.error < plain.error
    levels = [record.levels for record in tl.stored(polished.model).values()]
    assert len(levels) == 3
    assert all(level is not None and int(level.abs().max()) <= 1 for level in levels)


def test_files_hold_what_is_delivered(tmp_path: Path) -> None:
    model, x = image_net(), images()
    small = compress(model, x, bits=4, valid=(x, model(x).argmax(1)), out=tmp_path / "run")
    assert small.card["before"]["metric"] == 1.0
    size = small.save(tmp_path / "small.tl")
    assert size == small.bytes == (tmp_path / "run" / "model.tl").stat().st_size
    assert size == tl.deploy.save(small, tmp_path / "again.tl")
    assert json.loads((tmp_path / "small.card.json").read_text())["achieved"]["bytes"] == size
    loaded = tl.deploy.load(tmp_path / "small.tl")
    torch.testing.assert_close(loaded(x), small.model(x))
    assert json.loads((tmp_path / "run" / "card.json").read_text())["achieved"]["bytes"] == size
    assert "Where the bytes went" in small.report(tmp_path / "page.html").read_text()
    assert small.table().splitlines()[1].split()[:3] == ["0.weight", "12×3×3×3", "4"]


def test_neither_the_order_of_samples_nor_labels_nor_the_form_of_the_data_matter() -> None:
    """Up to the rounding of sums: a refit moves with it as little, a grid keeps its error."""
    model, x = image_net(), images()
    labels = torch.zeros(64, dtype=torch.int64)
    pairs = torch.utils.data.TensorDataset(x, labels)
    loader = torch.utils.data.DataLoader(pairs, batch_size=16)
    cut, grid = compress(model, x, ratio=0.25), compress(model, x, bits=4)
    for data in (x.flip(0), (x, labels), pairs, loader):
        other = compress(model, data, ratio=0.25).model
        for a, b in zip(cut.model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)
    assert compress(model, loader, bits=4).error == pytest.approx(grid.error, rel=0.1)


class Tied(nn.Module):
    """A table of vectors that is both looked up and multiplied with."""

    def __init__(self) -> None:
        super().__init__()
        self.look, self.mix = nn.Embedding(20, 8), nn.Linear(8, 8)
        self.read = nn.Linear(8, 20, bias=False)
        self.read.weight = self.look.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.read(torch.tanh(self.mix(self.look(ids))).mean(1))


def test_a_tied_weight_is_solved_once_and_stays_tied() -> None:
    torch.manual_seed(0)
    small = compress(Tied().eval(), torch.randint(0, 20, (32, 5)), bits=4)
    assert small.model.look.weight is small.model.read.weight
    assert [row.layer for row in small.rows] == ["look.weight", "mix.weight"]
    assert all(row.error is not None and not row.why for row in small.rows)


@pytest.mark.parametrize("name", [name for name in ANY if name != "mobilenet"])
def test_any_model(name: str) -> None:
    model, batch = any_model(name)
    batch = each(lambda t: t.repeat(2, *[1] * (t.ndim - 1)), batch)
    small = compress(model.eval(), batch, bits=4)
    assert small.error < 0.05
    assert all(row.bits == 4 or row.why for row in small.rows)
    cut = compress(model.eval(), batch, ratio=0.25)
    assert cut.card["achieved"]["parameters"] < cut.card["before"]["parameters"]
    assert cut.error < 0.01


@pytest.mark.parametrize("options", [{"bits": 4}, {"ratio": 0.25}], ids=str)
def test_a_mobile_network(options: dict[str, Any]) -> None:
    """Random depthwise layers deep down put out hardly anything: their inputs' Gram matrices are rounding."""
    model, batch = any_model("mobilenet")
    small = compress(model.eval(), each(lambda t: t.repeat(2, *[1] * (t.ndim - 1)), batch), **options)
    assert small.error < 0.15
    assert all(row.error is not None and not row.why for row in small.rows)


def grouped(layers: list[tuple[int, int, int]], groups: int) -> nn.Module:
    """Convolutions (inputs, outputs, kernel), each in so many groups."""
    convolutions = [nn.Conv2d(a * groups, b * groups, k, groups=groups) for a, b, k in layers]
    return nn.Sequential(*(m for conv in convolutions for m in (conv, nn.ReLU())))[:-1].eval()


@pytest.mark.parametrize("options", [{"bits": 3}, {"sparsity": 0.5}, {"bits": 4, "group": 32}], ids=str)
def test_groups_of_a_convolution_are_compressed_as_networks_apart(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layers = [(2, 32, 3), (32, 3, 1)]
    whole, halves = grouped(layers, 2), [grouped(layers, 1) for _ in range(2)]
    with torch.no_grad():
        for name, p in whole.named_parameters():
            p.copy_(torch.cat([dict(half.named_parameters())[name] for half in halves]))
    x = torch.randn(32, 4, 6, 6)
    together = compress(whole, x, **options).model
    apart = [
        compress(half, x_half, **options).model for half, x_half in zip(halves, x.chunk(2, 1), strict=True)
    ]
    for name, p in together.named_parameters():
        own = torch.cat([dict(half.named_parameters())[name] for half in apart])
        torch.testing.assert_close(p, own, atol=1e-4, rtol=1e-3)


def test_a_grouped_convolution_loses_whole_groups() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=4), nn.ReLU(), nn.Conv2d(16, 4, 1)
    ).eval()
    x = images()
    small = compress(model, x, ratio=0.25)
    assert [tuple(small.model[k].weight.shape) for k in (0, 2, 4)] == [
        (12, 3, 3, 3),
        (12, 4, 3, 3),
        (4, 12, 1, 1),
    ]
    assert small.model[2].groups == 3
    assert small.error < 0.5 * output_error(model, tl.deploy.prune(model, x[:2], 0.25), [(x,)])


def test_attention_of_a_users_class_loses_heads_and_is_read_back() -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.TransformerEncoderLayer(8, 4, 12, dropout=0.0, batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.block(x).mean(1))

    torch.manual_seed(0)
    small = compress(Reader().eval(), torch.randn(32, 5, 8), ratio=0.25)
    assert small.model.block.self_attn.num_heads == 3
    assert small.error < 0.05


def test_norms_are_folded_where_that_changes_nothing() -> None:
    model, x = image_net(), images(4)
    folded = fold_norms(model, (x,))
    torch.testing.assert_close(folded(x), model(x), atol=1e-4, rtol=1e-4)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in folded.modules())

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
            self.norm.running_mean.normal_()

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            return self.norm(y) + y

    twice = Twice().eval()
    assert isinstance(fold_norms(twice, (x,)).norm, nn.BatchNorm2d)


class Normed(nn.Module):
    """A user's class with batch norms, one of them with negative scales, one without any."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 24, 3, bias=False),
            nn.BatchNorm2d(24),
            nn.ReLU6(),
            nn.Conv2d(24, 24, 3, groups=24),
            nn.BatchNorm2d(24, affine=False),
            nn.ReLU(),
            nn.Conv2d(24, 8, 1, bias=False),
            nn.BatchNorm2d(8, affine=False),
        )
        for norm in (self.net[1], self.net[4], self.net[7]):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
        nn.init.normal_(self.net[1].weight)
        nn.init.normal_(self.net[1].bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).mean((2, 3))


@pytest.mark.parametrize(
    "options",
    [{"bits": 4}, {"bits": 3, "sparsity": 0.5}, {"ratio": 0.25}, {"bits": 4, "where": "net.0*"}],
    ids=str,
)
def test_norms_of_a_users_class_scale_nothing_in_the_file(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model, x = Normed().eval(), images()
    monkeypatch.setattr("torchlift.compress.planning.SHORTENED", 0.0)  # other vectors, other rounding
    small = compress(model, x, **options)
    monkeypatch.setattr("torchlift.compress.planning.plain_norms", lambda work, *_: work)
    before = compress(model, x, **options)
    torch.testing.assert_close(small.model(x), before.model(x), atol=1e-3, rtol=1e-3)  # some are halves
    assert type(small.model) is Normed
    assert {k: r.kept is None for k, r in tl.stored(small.model).items()} == {
        k: r.kept is None for k, r in tl.stored(before.model).items()
    }
    if "where" in options:  # norms that were not chosen keep their statistics
        assert small.bytes == before.bytes
        return
    assert small.bytes < before.bytes - 3 * 20  # three floats for each of 20 channels or more, at the least
    assert all(len(m.running_var.unique()) == 1 for m in small.model.modules() if hasattr(m, "running_var"))


def test_what_is_kept_is_left_alone() -> None:
    model, x = image_net(), images(32)
    small = compress(model, x, bits=3, keep="7")
    assert torch.equal(small.model[7].weight, model[7].weight)
    assert next(row.why for row in small.rows if row.layer == "7.weight") == "left alone by where= or keep="
    assert set(tl.stored(small.model)) == {"0.weight", "3.weight"}


def test_a_call_is_resumed_at_the_layer_it_was_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = image_net(), images(32)
    options: dict[str, Any] = {"bits": 3, "ratio": 0.25}
    whole = compress(model, x, **options).model
    step, count = StepJournal.__call__, [0]

    def killed(self: StepJournal, compute: Any) -> Any:
        count[0] += 1
        if count[0] == 4:
            raise KeyboardInterrupt
        return step(self, compute)

    monkeypatch.setattr(StepJournal, "__call__", killed)
    with pytest.raises(KeyboardInterrupt):
        compress(model, x, out=tmp_path, **options)
    assert len(list((tmp_path / "layers").glob("*.safetensors"))) == 3
    assert not (tmp_path / "model.tl").exists()
    with pytest.raises(CheckpointError, match="resume=True"):
        compress(model, x, out=tmp_path, **options)
    with pytest.raises(CheckpointError, match="another model, data or targets"):
        compress(model, x, out=tmp_path, resume=True, bits=4)
    resumed = compress(model, x, out=tmp_path, resume=True, **options).model
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


KILLED = """
import os, signal, sys, torch, torchlift as tl
from torchlift.compress.journal import StepJournal
sys.path.insert(0, sys.argv[2])
from test_compress import compress, image_net, images
step = StepJournal.__call__
def killed(self, compute):
    if self.number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, compute)
StepJournal.__call__ = killed
compress(image_net(), images(32), out=sys.argv[1], bits=3, ratio=0.25)
"""


def test_a_killed_process_is_resumed_by_another(tmp_path: Path) -> None:
    killed = python("-c", KILLED, str(tmp_path), str(Path(__file__).parent))
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    assert len(list((tmp_path / "layers").glob("*.safetensors"))) == 5
    model, x = image_net(), images(32)
    whole = compress(model, x, bits=3, ratio=0.25).model
    resumed = compress(model, x, out=tmp_path, resume=True, bits=3, ratio=0.25).model
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


class Idle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


def hooked_net() -> nn.Module:
    net = nn.Sequential(nn.Conv2d(3, 4, 3)).eval()
    net[0].register_forward_hook(lambda module, inputs, output: 2 * output)
    return net


class Overflow(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 0


def broken_net(where: str) -> nn.Module:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), *[Overflow()] * (where == "output")).eval()
    if where == "weight":
        nn.init.constant_(net[0].weight, torch.nan)
    return net


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": None}, "needs calibration data"),
        ({"data": torch.randn(4, 3, 8, 8)}, "needs 8 calibration samples or more, got 4"),
        ({"data": torch.full((16, 3, 8, 8), torch.nan)}, "NaN"),
        ({"data": torch.randn(16, 5)}, "does not take the calibration inputs of shape"),
        ({"model": image_net().train()}, "training mode"),
        ({"model": hooked_net()}, "^0 has a forward hook, which no file can hold"),
        ({"model": weight_norm(nn.Conv2d(3, 4, 3)).eval()}, "remove_parametrizations"),
        ({"model": Idle().eval(), "data": torch.randn(16, 4)}, "'idle.weight' never ran"),
        ({"bits": 1}, "from 2 to 8"),
        ({"ratio": 1.5}, r"ratio lies in \[0, 1\)"),
        ({"bytes": 0}, "positive"),
        ({"keep": "nowhere"}, "matches nothing"),
        ({"ratio": 0.5, "macs": 100.0}, "pass one of them"),
        ({"ratio": "half"}, "ratio is a number; got 'half'"),
        ({"bytes": "10 kB"}, "bytes is a number"),
        ({"keep": "*"}, "leave no weight to compress"),
        ({"device": "nowhere"}, "'nowhere' cannot be used"),
        ({"metric": lambda model, batch: 1.0}, "metric= is measured on validation data"),
        ({"model": broken_net("weight")}, "0.weight holds NaN"),
        ({"model": broken_net("output")}, "Sequential gives NaN"),
        ({"data": list(torch.randn(8, 16, 8))}, r"of shape \(2, 8\), \(2, 8\), \(2, 8\), \(2, 8\), … \("),
        ({"group": 7}, "32, 64 or 128"),
        ({"accuracy": 0.9}, "pass valid="),
        ({"accuracy": 0.9, "valid": (images(16), torch.zeros(16))}, "pass one of them"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    arguments: dict[str, Any] = {"model": image_net(), "data": images(16), "bits": 4} | change
    out = tmp_path / "out"
    with pytest.raises(TorchliftError, match=message) as caught:
        compress(arguments.pop("model"), arguments.pop("data"), out=out, **arguments)
    assert "\n" not in str(caught.value)
    assert not (out / "model.tl").exists()


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(TorchliftError, match=r"out= is a folder; .*out is a file"):
        compress(image_net(), images(16), bits=4, out=tmp_path / "out")


def test_calibration_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=images(40).numpy(), y=np.arange(40) % 2)
    assert compress(image_net(), tmp_path / "inputs.npz", bits=4).card["calibration"]["samples"] < 40
    with pytest.raises(ValueError, match="no data named 'nowhere'"):
        compress(image_net(), "nowhere", bits=4)


def test_a_metric_gives_a_number() -> None:
    with pytest.raises(TorchliftError, match=r"metric\(model, batch\) gives a number; got None"):
        compress(image_net(), images(16), bits=4, valid=images(16), metric=lambda model, batch: None)


def test_calibration_tells_arguments_from_labels() -> None:
    class Two(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return a + b

    device = torch.device("cpu")
    x = torch.randn(16, 3)
    assert Calibration.of(Two(), (x, x), device).positional
    assert not Calibration.of(nn.Identity(), (x, x), device).positional
    with pytest.raises(DataError, match="empty"):
        Calibration.of(nn.Identity(), [], device)


def labelled(model: nn.Module, count: int = 256) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        return x, model(x).argmax(1)


def test_an_accuracy_is_kept_with_the_fewest_bytes() -> None:
    model, x = image_net(), images()
    kept = compress(model, x, accuracy=0.7, valid=labelled(model))
    assert kept.card["achieved"]["metric"] >= 0.7
    assert kept.bytes < compress(model, x, bits=4).bytes
    with pytest.raises(TorchliftError, match="the model itself has 1"):
        compress(model, x, accuracy=1.1, valid=labelled(model))


def test_latency_is_met_by_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that counts parameters."""
    model, x = image_net(), images()

    def clock(small: nn.Module, *_: Any) -> float:
        return sum(p.numel() for p in small.parameters()) / 1e6

    monkeypatch.setattr("torchlift.compress.planning.median_latency", clock)
    small = compress(model, x, latency=1.5)
    assert 1000 < sum(p.numel() for p in small.model.parameters()) <= 1500
    with pytest.raises(TorchliftError, match=r"latency=0\.001 is not possible: the least"):
        compress(model, x, latency=0.001)


def test_latency_of_integers_is_met_by_integers_before_cuts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a clock that counts the bytes of files."""
    pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 4)).eval()
    x = torch.randn(64, 48)

    def clock(models: list[Any], _: Any) -> list[float]:
        return [one.ByteSize() / 1e6 for one in models]

    monkeypatch.setattr("torchlift.deploy.integer_file.cpu_seconds", clock)
    monkeypatch.setattr("torchlift.compress.planning.PARTS", 4)
    whole = compress(model, x, latency=1e6, integer=True)
    assert whole.card["achieved"]["parameters"] == whole.card["before"]["parameters"]
    size = whole.card["integer"]["milliseconds"]
    assert size < whole.card["integer"]["float_milliseconds"]
    cut = compress(model, x, latency=0.8 * size, integer=True, out=tmp_path / "run")
    assert 16 <= cut.model[0].out_features < 64
    assert cut.card["achieved"]["latency"] <= 0.8 * size
    assert (tmp_path / "run" / "model.onnx").stat().st_size == cut.card["integer"]["bytes"]
    saved = json.loads((tmp_path / "run" / "card.json").read_text())
    assert saved["integer"]["milliseconds"] == cut.card["achieved"]["latency"]
    with pytest.raises(TorchliftError, match=r"latency=0\.0001 is not possible: the least"):
        compress(model, x, latency=1e-4, integer=True)
    with pytest.raises(TorchliftError, match="pass latency=, too"):
        compress(model, x, bits=4, integer=True)


def test_prune_with_calibration_refits_what_is_left() -> None:
    model, x = image_net(), images()
    refit = tl.deploy.prune(model, x[:2], 0.5, calibration=x)
    plain = tl.deploy.prune(model, x[:2], 0.5, round_to=1)
    assert refit[3].weight.shape == plain[3].weight.shape == (8, 6, 3, 3)
    assert output_error(model, refit, [(x,)]) < 0.5 * output_error(model, plain, [(x,)])
    with pytest.raises(TorchliftError, match="criterion= is for prune without calibration="):
        tl.deploy.prune(model, x[:2], 0.5, calibration=x, criterion="norm")


def test_cuts_are_allocated_by_what_they_cost() -> None:
    """A layer whose outputs are nearly copies of a few gives more; no more is left than with equal parts."""
    torch.manual_seed(0)
    wide, narrow = nn.Linear(12, 64), nn.Linear(64, 32)
    with torch.no_grad():
        wide.weight.copy_(torch.randn(64, 3) @ torch.randn(3, 12))
        wide.bias.zero_()
    model = nn.Sequential(wide, nn.Tanh(), narrow, nn.ReLU(), nn.Linear(32, 8)).eval()
    x = torch.randn(512, 12)
    equal, allocated = (compress(model, x, ratio=0.5, allocate=a) for a in (False, True))
    assert allocated.error < 0.8 * equal.error
    assert (equal.model[0].out_features, equal.model[2].out_features) == (32, 16)
    widths = allocated.model[0].out_features, allocated.model[2].out_features
    assert widths[0] < 32
    assert widths[1] > 16
    assert not any(width % 4 for width in widths)
    for name in ("parameters", "macs"):
        assert allocated.card["achieved"][name] <= equal.card["achieved"][name]


def test_moved_targets_are_the_minimum_of_their_energy() -> None:
    torch.manual_seed(0)
    y, p, g = (torch.randn(6, 4, dtype=torch.float64) for _ in range(3))
    z = Pull(p, g, 0.7).moved(y, -1, None).requires_grad_()
    energy = (y - y.mean()).square().sum()
    parts = ((z - y).square().sum() + (z - p).square().sum()) / energy
    (parts + (g * (z - p)).sum() + 0.35 * (z - p).square().sum()).backward()
    torch.testing.assert_close(z.grad, torch.zeros_like(y))
    some = Pull(p[:, :2], g[:, :2], 0.7).moved(y, -1, torch.tensor([0, 3]))
    assert torch.equal(some[:, 1:3], y[:, 1:3])


def test_a_second_sweep_moves_targets_and_never_loses() -> None:
    model, x = image_net(), images()
    for options, moves in (({"bits": 2}, True), ({"bits": 2, "ratio": 0.25}, False)):
        once, twice = (compress(model, x, sweeps=n, **options) for n in (1, 2))
        assert twice.error < once.error or (twice.error == once.error and not moves)
