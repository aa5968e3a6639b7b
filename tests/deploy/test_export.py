"""ONNX files compute what the model does."""

import copy
import zipfile

import pytest
import torch
from torch import nn

import torchlift as tl
from torchlift.deploy import export, shrink

onnxruntime = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")


def test_a_shrunken_network_runs_in_onnx_at_any_batch_size(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 3),
    )
    with torch.no_grad():
        model[0].weight[:3] = 0
    x = torch.randn(2, 1, 8, 8)
    small = shrink(model, x)
    assert small[0].out_channels == 3
    path = tmp_path / "m.onnx"
    assert export(small, x, path) < 1e-5
    assert small.training
    session = onnxruntime.InferenceSession(str(path))
    more = torch.randn(5, 1, 8, 8)
    (actual,) = session.run(None, {session.get_inputs()[0].name: more.numpy()})
    torch.testing.assert_close(torch.from_numpy(actual), small.eval()(more).detach(), atol=1e-5, rtol=0)


def test_how_weights_lie_in_memory_leaves_no_trace(tmp_path):
    """torch averages maps with their channels last by strides, for which ONNX has seven operations."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    first, x = nn.Sequential(*layers).eval(), torch.randn(2, 3, 8, 8)
    last = copy.deepcopy(first).to(memory_format=torch.channels_last)
    for name, model in (("first", first), ("last", last)):
        assert export(model, x, tmp_path / f"{name}.onnx") < 1e-5
    nodes = [onnx.load(tmp_path / f"{name}.onnx").graph.node for name in ("first", "last")]
    assert [node.op_type for node in nodes[0]] == [node.op_type for node in nodes[1]]
    assert last[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_the_ending_says_what_is_written(tmp_path):
    model, x = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU()).train(), torch.randn(2, 4)
    model[1].eval()
    assert export(model, x, tmp_path / "m.pt2") < 1e-6
    assert [module.training for module in model.modules()] == [True, True, False, True]
    again = torch.export.load(tmp_path / "m.pt2").module()
    more = torch.randn(5, 4)
    torch.testing.assert_close(again(more), model.eval()(more))
    for name in ("m.bin", "m"):
        with pytest.raises(ValueError, match=r"\.onnx and \.pt2"):
            export(model, x, tmp_path / name)
        assert not (tmp_path / name).exists()


def rows_inside(path, x):
    """How many samples' bytes are in a file, as they are or in the parts of an archive."""
    contents = [path.read_bytes()]
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            contents = [archive.read(name) for name in archive.namelist()]
    return sum(row.numpy().tobytes() in content for row in x for content in contents)


def test_nothing_of_the_caller_is_in_what_is_delivered(tmp_path):
    """Exporters write an input's whole storage; the example is a view of all data."""
    x = torch.randn(4000, 8)
    y = (x.sum(1) > 0).long()
    result = tl.fit(
        nn.Linear(8, 2), (x, y), (x, y), test=(x, y), epochs=1, out=tmp_path / "run", progress=False
    )
    result.report(tmp_path / "report.html")
    tl.compress(result.model, x, bits=4).save(tmp_path / "compressed.tl")
    example = x[:2]
    for name in ("m.onnx", "m.pt2"):
        export(result.model, example, tmp_path / name)
    actual = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"m.onnx", "m.pt2", "model.tl", "card.json", "report.html", "compressed.tl"} <= {
        p.name for p in actual
    }
    assert not {path.name: rows for path in actual if (rows := rows_inside(path, x))}
    torch.export.save(torch.export.export(result.model.eval(), (torch.zeros(2, 8),)), tmp_path / "plain.pt2")
    assert (tmp_path / "m.pt2").stat().st_size < 1.5 * (tmp_path / "plain.pt2").stat().st_size
    torch.export.save(torch.export.export(result.model.eval(), (example,)), tmp_path / "careless.pt2")
    assert rows_inside(tmp_path / "careless.pt2", x), "what is searched for can be found"
