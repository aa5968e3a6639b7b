"""ONNX that computes with integers: close to float, levels as trained, one line for bad input."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.channels.folding import fold_norms
from torchlift.core import Task, store, stored
from torchlift.deploy.integer import calibration_batches
from torchlift.deploy.integer_forms import prepare
from torchlift.deploy.integer_graph import weight_grid
from torchlift.errors import TorchliftError
from torchlift.lifts import LearnedStep

runtime = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
integer_file = pytest.importorskip("torchlift.deploy.integer_file")


class Residual(nn.Module):
    """Convolutions with norms, a sum, pooling, padding outside, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.second, self.norm2 = nn.Conv2d(8, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8, 5)
        for norm in (self.norm, self.norm2):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            norm.running_mean.normal_(0, 0.3)
            norm.running_var.uniform_(0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.first(x)))
        z = self.norm2(self.second(nn.functional.pad(y, (1, 1, 1, 1))))
        y = nn.functional.max_pool2d(torch.relu(y + z), 2)
        return self.head(nn.functional.hardtanh(self.deep(y), 0, 6).mean((2, 3), keepdim=True).flatten(1))


class Attention(nn.Module):
    """One encoder layer and a linear one."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.norm, self.wide, self.narrow = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        score = self.query(x) @ self.key(x).transpose(1, 2) / 4
        x = self.norm(x + self.out(score.softmax(-1) @ self.value(x)))
        return self.narrow(nn.functional.gelu(self.wide(x)).mean(1))


class Columns(nn.Module):
    """Maps one entry wide: padding, strides, a sum, pooling, a norm after its ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, (6, 1), (2, 1)), nn.Conv2d(8, 8, (3, 1), padding=(1, 0))
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(64, 5)
        nn.init.uniform_(self.norm.bias)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(nn.functional.pad(x[:, None, :, None], (0, 0, 1, 3))))
        y = nn.functional.max_pool2d(self.norm(y + self.second(y)), (2, 1))
        return self.head(y.permute(0, 2, 1, 3).flatten(1))


def network(seed: int, kind: type[nn.Module] | None = None) -> nn.Module:
    torch.manual_seed(seed)
    layers = (nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    return (nn.Sequential(*layers) if kind is None else kind()).eval()


CASES = {
    "residual": (
        Residual,
        (3, 8, 8),
        {"convolution": 2, "depthwise": 1, "linear": 1, "sum": 1, "average": 1},
        {"QLinearConv", "QLinearAdd", "QLinearGlobalAveragePool", "QGemm"},
    ),
    "columns": (
        Columns,
        (32,),
        {"convolution": 2, "linear": 1, "sum": 1},
        {"QLinearConv", "QLinearAdd", "QGemm"},
    ),
    "mlp": (None, (12,), {"linear": 3}, {"QGemm"}),
    "attention": (Attention, (6, 16), {"linear": 6, "product": 2}, {"MatMulIntegerToFloat"}),
}


@pytest.mark.parametrize("case", CASES)
def test_outputs_stay_close_and_every_layer_is_integers(case, tmp_path):
    kind, shape, operations, kernels = CASES[case]
    model, x = network(0, kind), torch.randn(64, *shape)
    exported = tl.deploy.export(model, x[:2], tmp_path / "m.onnx", integer="all", calibration=x)
    assert exported < 0.05
    assert exported.card["output_error"] < 0.01
    assert {k: n for k, n in exported.card["operations"].items() if k != "pass"} == operations
    assert set(exported.card["weights"].values()) == {"int8"}
    graph = onnx.load(tmp_path / "m.onnx").graph
    weights = [t for t in graph.initializer if t.name.endswith(".levels")]
    assert len(weights) == sum(operations.get(k, 0) for k in ("convolution", "depthwise", "linear"))
    assert all(t.data_type == onnx.TensorProto.INT8 for t in weights)
    assert not [t for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT and len(t.dims) > 1]
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"))
    more = torch.randn(5, *shape)
    (y,) = session.run(None, {session.get_inputs()[0].name: more.numpy()})
    expected = model(more).detach()
    assert (torch.from_numpy(y) - expected).square().mean() < 0.02 * expected.var(0).mean()
    assert json.loads(session.get_modelmeta().custom_metadata_map["torchlift"])["integer"]
    assert kernels <= executed(tmp_path)
    assert not {"Conv", "Relu", "Clip", "Pad", "Gemm"} & executed(tmp_path)
    assert ("BatchNormalization" in executed(tmp_path)) == (kind is Columns)


def test_columns_lie_down_and_compute_the_same(tmp_path):
    model, x = network(0, Columns), torch.randn(3, 32)
    tl.deploy.export(model, x, tmp_path / "m.onnx")
    lying = prepare(onnx.load(tmp_path / "m.onnx"))
    kernels = [lying.constants[node.input[1]].shape for node in lying.nodes if node.op_type == "Conv"]
    assert kernels == [(8, 1, 1, 6), (8, 8, 1, 3)]
    session = runtime.InferenceSession(lying.model.SerializeToString())
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(y), model(x).detach(), atol=1e-5, rtol=1e-5)


def test_a_single_layer_that_is_slower_in_integers_stays_float(tmp_path, monkeypatch):
    """The middle layer takes 5 as integers, the others 1 and in float 3."""
    costs = {"0.weight": (1, 3), "2.weight": (5, 1), "4.weight": (1, 3)}

    def seconds(models, feed):
        names = [{t.name for t in one.graph.initializer} for one in models]
        return [sum(c[name in own] for name, c in costs.items()) for own in names]

    def of_layers(model, layers, feed):
        tried = real(model, layers, feed)
        assert 0 < min(tried.values()) < max(tried.values()) == tried[integer_file.WHOLE]
        return dict(zip([*layers, integer_file.WHOLE], [1, 5, 1, 7], strict=True))

    real = integer_file.layer_seconds
    monkeypatch.setattr(integer_file, "cpu_seconds", seconds)
    monkeypatch.setattr(integer_file, "layer_seconds", of_layers)
    model, x = network(0), torch.randn(16, 12)
    tl.deploy.export(model, x[:1], tmp_path / "m.onnx")
    file = integer_file.File.open(tmp_path / "m.onnx", [])
    file.calibrate([x])
    expected = [[model(x).detach().numpy()]]
    choice, reasons = file.best(expected, x[:1])
    assert reasons == {"2.weight": "float: faster here"}
    assert file.deliver(tmp_path / "m.onnx", choice, reasons, expected, x[:1]).card["weights"] == {
        "0.weight": "int8",
        "2.weight": "float32",
        "4.weight": "int8",
    }
    costs["2.weight"] = (5, 6)
    choice, reasons = file.best(expected, x[:1])
    assert choice is not None
    assert not choice.nodes
    assert not reasons


@pytest.mark.filterwarnings("ignore:export. rounding moves the outputs")
@pytest.mark.parametrize(("least", "float_layers"), [(integer_file.SENSITIVE, ["0.weight"]), (10.0, [])])
def test_the_first_layer_stays_float_where_its_rounding_moves_the_outputs(
    least, float_layers, tmp_path, monkeypatch
):
    """One input is a thousand times the others, and counts as little."""
    monkeypatch.setattr(integer_file, "SENSITIVE", least)
    monkeypatch.setattr(integer_file, "cpu_seconds", lambda models, feed: [2.0] + [1.0] * (len(models) - 1))
    model, x = network(0), torch.randn(16, 12)
    x[:, 0] *= 1000
    with torch.no_grad():
        model[0].weight[:, 0] = 0
    card = tl.deploy.export(model, x[:1], tmp_path / "m.onnx", integer=True, calibration=x).card
    assert [name for name, kind in card["weights"].items() if kind == "float32"] == float_layers
    assert (card["output_error"] < 0.01) == bool(float_layers)


@pytest.mark.parametrize("even", [True, False])
def test_one_step_for_a_weight_is_taken_where_it_is_faster_and_as_close(even, tmp_path, monkeypatch):
    def seconds(models, feed):
        steps = [[t for t in m.graph.initializer if t.name.endswith(".step")] for m in models]
        return [4.0 if not own else 1.0 + sum(bool(t.dims) for t in own) / 4 for own in steps]

    monkeypatch.setattr(integer_file, "cpu_seconds", seconds)
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.Flatten(), nn.Linear(128, 3))
    model, x = nn.Sequential(*layers).eval(), torch.randn(16, 3, 8, 8)
    if not even:  # a channel that does not count has large weights for zeros
        x[:, 2] = 0
        with torch.no_grad():
            model[0].weight[0, 2] = 100
            model[2].weight[0] = 0
    card = tl.deploy.export(model, x[:1], tmp_path / "m.onnx", integer=True, calibration=x).card
    assert card["one_step"] == (["convolution", "depthwise", "linear"] if even else ["linear"])
    assert card["output_error"] < 0.01


def executed(folder: Path) -> set[str]:
    """The kinds of operations that the runtime makes of a file."""
    options = runtime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(folder / "run.onnx"), 3
    runtime.InferenceSession(str(folder / "m.onnx"), options, providers=["CPUExecutionProvider"])
    return {node.op_type for node in onnx.load(folder / "run.onnx").graph.node}


def test_levels_in_the_file_are_those_that_were_trained(tmp_path):
    torch.manual_seed(1)
    lift = LearnedStep(bits=5)
    net = lift.project(lift.lift(Task(Residual().eval()))).model.eval()
    x = torch.randn(16, 3, 8, 8)
    exported = tl.deploy.export(net, x[:2], tmp_path / "m.onnx", integer="all", calibration=x)
    kinds = list(exported.card["weights"].values())
    levels = {name: record.levels for name, record in stored(net).items() if record.step is not None}
    assert kinds.count("int8, levels as trained") == len(levels) >= 3
    graph = onnx.load(tmp_path / "m.onnx").graph
    written = [onnx.numpy_helper.to_array(t) for t in graph.initializer if t.name.endswith(".levels")]
    for own in levels.values():
        same = [w for w in written if w.shape == tuple(own.shape)]
        sign = own.numpy()
        assert any(np.array_equal(np.abs(w * power), np.abs(sign)) for w in same for power in (1, 2, 4, 8))


def test_folding_a_norm_keeps_levels_and_outputs():
    model, x = network(0, Residual), torch.randn(4, 3, 8, 8)
    weight = model.first.weight
    step = torch.full((8, 1, 1, 1), float(weight.detach().abs().max()) / 7)
    store(model, "first.weight", step=step, levels=(weight.detach() / step).round())
    levels = stored(model)["first.weight"].levels
    folded = fold_norms(model, x)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in folded.modules())
    torch.testing.assert_close(folded(x), model(x), atol=1e-5, rtol=1e-4)
    assert torch.equal(stored(folded)["first.weight"].levels, levels)


def test_activations_trained_to_be_rounded_keep_their_range(tmp_path):
    torch.manual_seed(0)
    lift = tl.lifts.Precision(p_init=8, activations=True)
    net = lift.project(lift.lift(Task(network(0)))).model.eval()
    x = 3 * torch.randn(64, 12)
    exported = tl.deploy.export(net, x[:2], tmp_path / "m.onnx", integer="all", calibration=x)
    assert exported.card["operations"] == {"linear": 3}
    assert exported.card["output_error"] < 0.01


def test_what_is_measured_is_written_down(tmp_path):
    model, x = network(0), torch.randn(32, 12)
    exported = tl.deploy.export(model, x[:1], tmp_path / "m.onnx", integer=True, calibration=x)
    card = exported.card
    assert card["ratio"] > 0
    assert card["milliseconds"] > 0
    assert card["integer"] or card["milliseconds"] == card["float_milliseconds"]
    assert card["bytes"] == (tmp_path / "m.onnx").stat().st_size
    if not card["integer"]:
        assert "of the time" in card["float"]["model"]
    said = {p.key: p.value for p in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert json.loads(said["torchlift"])["output_error"] == card["output_error"]
    assert not list(tmp_path.glob("*.float.onnx"))


X = torch.randn(16, 12)


@pytest.mark.parametrize(
    ("calibration", "said"),
    [
        (None, "pass calibration=x"),
        (X[:3], "8 calibration samples or more, got 3"),
        (torch.full((16, 12), torch.nan), "not finite"),
        (torch.randn(16, 11), "pass inputs like it"),
        (3, "pass a tensor, a dict or batches"),
    ],
)
def test_bad_calibration_is_one_line(calibration, said, tmp_path):
    with pytest.raises(ValueError, match=said) as error:
        tl.deploy.export(network(0), X[:1], tmp_path / "m.onnx", integer=True, calibration=calibration)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_integers_are_onnx_only_and_need_a_layer(tmp_path):
    with pytest.raises(ValueError, match="integer"):
        tl.deploy.export(network(0), X[:1], tmp_path / "m.pt2", integer=True, calibration=X)
    with pytest.raises(ValueError, match="no layer with an integer kernel"):
        tl.deploy.export(nn.Tanh(), X[:1], tmp_path / "m.onnx", integer=True, calibration=X)


def test_batches_with_labels_calibrate_too():
    data = torch.utils.data.TensorDataset(X, torch.zeros(16))
    loader = torch.utils.data.DataLoader(data, batch_size=5)
    assert torch.equal(torch.cat(calibration_batches(X[:1], loader)), X)
    assert torch.equal(
        torch.cat([batch["x"] for batch in calibration_batches({"x": X[:1]}, {"x": X, "labels": X})]), X
    )


def exact(graph, x: np.ndarray) -> np.ndarray:
    """A single linear layer of a file, by integer arithmetic without limits."""
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    (levels,) = (name for name in constants if name.endswith(".levels"))
    stem, input_name = levels.removesuffix(".levels"), graph.input[0].name
    scale, zero = constants[f"{input_name}.scale"], int(constants[f"{input_name}.zero"])
    q = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.int64) - zero
    k = constants[levels].astype(np.int64) - constants[f"{stem}.zero"].astype(np.int64).reshape(-1, 1)
    step = constants[f"{stem}.step"].astype(np.float64).reshape(-1)
    return (q @ k.T + constants[f"{stem}.bias"]) * (scale * step)


@pytest.mark.parametrize("trained", [False, True])
def test_the_file_computes_what_its_integers_say_on_any_processor(trained, tmp_path):
    """Large weights and inputs of one sign: sums of two products would not fit 16 bits."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 16)).eval()
    levels = torch.randint(100, 128, (16, 64)).float()
    step = torch.full((16, 1), 0.01)
    with torch.no_grad():
        model[0].weight.copy_(levels * step)
    if trained:
        store(model, "0.weight", step=step, levels=levels)
    x = torch.rand(16, 64) + 0.5
    exported = tl.deploy.export(model, x[:2], tmp_path / "m.onnx", integer="all", calibration=x)
    assert list(exported.card["weights"].values()) == ["uint8, levels as trained" if trained else "int8"]
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"))
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    graph = onnx.load(tmp_path / "m.onnx").graph
    np.testing.assert_allclose(y, exact(graph, x.numpy()), rtol=1e-5)


@pytest.mark.parametrize("one_step", [False, True])
def test_no_two_levels_of_a_channel_overflow(one_step):
    rng = np.random.default_rng(0)
    for shape, axis in (((8, 3, 3, 3), 0), ((5, 1), 0), ((30, 7), 1)):
        values = rng.standard_t(2, shape).astype(np.float32)
        step, whole, _ = weight_grid(values, axis, [], np.float32(1), None, one_step)
        rows = np.sort(np.moveaxis(whole.astype(int), axis, 0).reshape(shape[axis], -1), axis=1)
        assert rows[:, -2:].clip(0).sum(1).max() <= 128
        assert rows[:, :2].clip(None, 0).sum(1).min() >= -128
        assert step.shape == (() if one_step else (shape[axis],))


def convolutions() -> nn.Module:
    """Every convolution has a norm."""
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(3, 32, 3, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, bias=False),
    )
    return nn.Sequential(*layers, nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)).eval()


def test_every_weight_of_a_residual_network_is_integers(tmp_path):
    torch.manual_seed(0)
    model, x = tl.models.resnet(8).eval(), torch.randn(16, 3, 8, 8)
    count = sum(isinstance(m, nn.Conv2d | nn.Linear) for m in model.modules())
    exported = tl.deploy.export(model, x[:1], tmp_path / "m.onnx", integer="all", calibration=x)
    assert list(exported.card["weights"].values()) == ["int8"] * count
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"))
    name = session.get_inputs()[0].name
    assert [len(session.run(None, {name: x[:n].numpy()})[0]) for n in (1, 5)] == [1, 5]


def test_eight_trained_bits_become_int8(tmp_path):
    lift, x = tl.lifts.DoReFa(bits=8), torch.randn(16, 3, 8, 8)
    net = lift.project(lift.lift(Task(convolutions()))).model.eval()
    exported = tl.deploy.export(net, x[:2], tmp_path / "m.onnx", integer="all", calibration=x)
    assert {kind[:4] for kind in exported.card["weights"].values()} == {"int8"}
    assert exported.card["output_error"] < 1e-3


def test_few_trained_bits_and_activations_become_a_small_file(tmp_path):
    torch.manual_seed(0)
    x, y = torch.randn(64, 3, 8, 8), torch.arange(64) % 10
    recipe = tl.recipes.Smol(bits=3, activations=True)
    net = tl.fit(convolutions(), (x, y), recipe=recipe, epochs=2, progress=False).model.eval()
    exported = tl.deploy.export(net, x[:2], tmp_path / "m.onnx", integer="all", calibration=x)
    assert set(exported.card["weights"].values()) == {"int8, levels as trained"}
    assert exported.card["bytes"] < 0.4 * exported.card["float_bytes"]


def test_what_compress_makes_fast_ends_in_integers(tmp_path):
    done = tl.compress(convolutions(), torch.randn(64, 3, 8, 8), latency=1e4, bits=6, progress=False)
    done.export(tmp_path / "m.onnx", integer="all")
    assert set(done.card["integer"]["weights"].values()) == {"int8, levels as trained"}
    assert done.card["integer"]["output_error"] < 0.05


class Counts(nn.Module):
    """Its samples are counted in Python, which an exporter takes for a number."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(144, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.conv(x)).reshape(len(x), -1))


def test_a_batch_size_that_export_fixes_is_one_line(tmp_path):
    x = torch.randn(64, 1, 8, 8)
    with pytest.raises(TorchliftError, match=r"x\.shape\[0\] or x\.flatten"):
        tl.deploy.export(Counts(), x[:1], tmp_path / "m.onnx", integer=True, calibration=x)
    assert not list(tmp_path.iterdir())
