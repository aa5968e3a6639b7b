"""From data to predictions through public commands: the run's folder is the deliverable."""

import csv
import json

import numpy as np
import pytest
import torch
from torch import nn

import torchlift as tl
from torchlift.errors import TorchliftError


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    rows = ["size,color,kind"]
    for _ in range(80):
        size, color = rng.normal(), rng.choice(["red", "green"])
        rows.append(f"{size:.3f},{color},{'big' if size + (color == 'red') > 0.5 else 'small'}")
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "new.csv").write_text("color,size\nred,3.0\ngreen,-3.0\n")


def test_a_table_becomes_names_of_classes_for_new_rows(run, table, tmp_path):
    assert run("fit --model mlp --data t.csv --epochs 15 --lr 0.01 --out runs/t").code == 0
    assert {"model.tl", "card.json", "report.html"} <= {file.name for file in (tmp_path / "runs/t").iterdir()}
    for source in ("runs/t", "runs/t/model.tl"):
        ran = run(f"predict {source} new.csv --out p.csv")
        assert ran.code == 0, ran.err
        with (tmp_path / "p.csv").open() as file:
            assert [row["kind"] for row in csv.DictReader(file)] == ["big", "small"]
    assert json.loads(run("measure runs/t --json").out)["example"] == [1, 3]
    card = json.loads((tmp_path / "runs/t/card.json").read_text())
    assert card["output"]["classes"] == ["big", "small"]
    assert tl.deploy.load(tmp_path / "runs/t/model.tl").eval() is not None


def test_data_that_do_not_fit_the_card_are_named(run, table, tmp_path):
    splits = tl.data.load(str(tmp_path / "t.csv"))
    result = tl.fit(tl.models.MLP(3, 4, 2), splits, epochs=1, progress=False)
    result.save(tmp_path / "m.tl")
    (tmp_path / "word.csv").write_text("color,size\nblue,1.0\n")
    (tmp_path / "less.csv").write_text("size,shape\n1.0,2\n")
    (tmp_path / "text.csv").write_text("color,size\nred,wide\n")
    for name, what in (("word", "'blue'"), ("less", "no column 'color'"), ("text", "'wide'")):
        with pytest.raises(ValueError, match=what) as caught:
            tl.predict(tmp_path / "m.tl", tmp_path / f"{name}.csv")
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"samples of shape \(2,\), the model takes \(3,\)"):
        tl.predict(tmp_path / "m.tl", np.zeros((4, 2), np.float32))
    with pytest.raises(TorchliftError, match=r"no model\.tl"):
        tl.load_run(tmp_path)


def test_runs_of_a_comparison_know_the_columns_and_the_classes(run, table, tmp_path):
    assert run("compare --model mlp --data t.csv --recipe normalize --seeds 1 --budget 8 --out c").code == 0
    assert run("predict c/normalize-0 new.csv --out kinds.csv").code == 0
    assert "kind" in (tmp_path / "kinds.csv").read_text()
    with pytest.raises(TorchliftError, match="give one of the runs in it: normalize-0, plain-0"):
        tl.load_run(tmp_path / "c")
    splits = tl.data.load(str(tmp_path / "t.csv"))
    settings = {"recipes": {}, "seeds": 1, "budget": 1, "progress": False}
    done = tl.compare(lambda: tl.models.MLP(3, 4, 2), splits, **settings)
    assert done.results["plain"][0].card["output"]["classes"] == ["big", "small"]


def test_pictures_are_scaled_as_they_were_and_own_classes_given(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name, light in (("dark", 40), ("light", 200)):
        (tmp_path / "p" / name).mkdir(parents=True)
        for number in range(12):
            pixels = rng.integers(light - 30, light + 30, (6, 6, 3), dtype=np.uint8)
            pillow.fromarray(pixels).save(tmp_path / "p" / name / f"{number}.png")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.relu(self.conv(x)).mean((2, 3)).view(-1, 4))

    splits = tl.data.load(str(tmp_path / "p"))
    optimizer = lambda groups: torch.optim.Adam(groups, 0.05)
    result = tl.fit(Net(), splits, epochs=20, optimizer=optimizer, progress=False, out=tmp_path / "run")
    predicted = tl.predict(tmp_path / "run", tmp_path / "p", into=Net())
    right = [
        sample.startswith(label) for sample, label in zip(predicted.samples, predicted.labels, strict=True)
    ]
    assert sum(right) >= 22
    assert result.card["input"]["shape"] == [3, 6, 6]
    pillow.fromarray(np.zeros((5, 5, 3), np.uint8)).save(tmp_path / "small.png")
    with pytest.raises(ValueError, match="pixels"):
        tl.predict(tmp_path / "run", tmp_path / "small.png", into=Net())
    with pytest.raises(TorchliftError, match="into="):
        tl.load_run(tmp_path / "run")


def test_nothing_of_the_training_data_is_in_what_is_delivered(tmp_path):
    x = torch.randn(200, 16, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))
    result = tl.fit(model, (x, y), epochs=1, progress=False, out=tmp_path / "run")
    result.save(tmp_path / "run" / "small.tl")
    tl.deploy.export(result.model, x[:3], tmp_path / "run" / "m.pt2")
    tl.deploy.export(result.model, x[:3], tmp_path / "run" / "m.onnx")
    for name in ("model.tl", "small.tl", "card.json", "m.pt2", "m.onnx"):
        content = (tmp_path / "run" / name).read_bytes()
        assert not any(row[:2].numpy().tobytes() in content for row in x)
    assert (tmp_path / "run" / "m.pt2").stat().st_size < 40_000


def test_a_compressed_run_says_its_classes_too(run, fails, table, tmp_path):
    assert run("fit --model mlp --data t.csv --epochs 5 --lr 0.01 --out runs/t").code == 0
    ran = run("compress runs/t --data t.csv --bytes 1200 --to small.tl --json")
    assert ran.code == 0, ran.err
    assert (tmp_path / "small.tl").stat().st_size == json.loads(ran.out)["achieved"]["bytes"] <= 1200
    (tmp_path / "small.card.json").unlink()
    rows = json.loads(run("predict small.tl new.csv --json").out)["rows"]
    assert {row["kind"] for row in rows} <= {"big", "small"}
    torch.save({"net": nn.Linear(2, 2)}, tmp_path / "whole.pt")
    fails("measure --model mlp --weights whole.pt --example 1,3", "torch.save(model.state_dict(), path)")


def test_values_are_predicted_in_their_own_unit(run, tmp_path):
    rng = np.random.default_rng(0)
    sizes = rng.normal(80, 20, 120)
    rows = [f"{size:.2f},{1000 * size + 20_000:.0f}" for size in sizes]
    (tmp_path / "homes.csv").write_text("\n".join(["size,price", *rows]) + "\n")
    (tmp_path / "new.csv").write_text("size\n60\n100\n")
    assert "--loss mse" in run("fit --model mlp --data homes.csv --out runs/no").err
    fit = "fit --model mlp --data homes.csv --loss mse --epochs 40 --batch-size 16 --lr 0.01 --out runs/homes"
    assert run(fit).code == 0
    small, large = (row["price"] for row in json.loads(run("predict runs/homes new.csv --json").out)["rows"])
    assert small == pytest.approx(80_000, rel=0.1)
    assert large == pytest.approx(120_000, rel=0.1)


def test_a_target_of_bytes_is_that_of_the_file_with_its_card(run, tmp_path):
    ran = run("fit --model mlp --data iris --recipe smol --set bytes=1150 --epochs 6 --out runs/iris")
    assert ran.code == 0, ran.err
    size = (tmp_path / "runs/iris/model.tl").stat().st_size
    assert f"{size:,} bytes" in ran.out
    assert 1000 < size <= 1150
    assert json.loads(run("measure runs/iris --json").out)["file_bytes"] == size
    card = json.loads((tmp_path / "runs/iris/card.json").read_text())
    assert card["targets"]["bytes"]["target"] == 1150
    assert card["output"]["classes"] == ["setosa", "versicolor", "virginica"]
    assert card["from"]["data"].startswith("90 samples, ")


def test_each_of_several_labels_has_its_probability():
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(torch.eye(2) * 9)
        model.bias.zero_()
    card = {"output": {"kind": "labels", "classes": ["wet", "cold"]}}
    said = tl.predict(model, torch.tensor([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0]]), card=card)
    assert said.labels == ["wet, cold", "cold", ""]
    assert list(said.rows()[0]) == ["sample", "probability of wet", "probability of cold"]
    assert [row["probability of wet"] for row in said.rows()] == [0.999877, 0.000123395, 0.000123395]


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 2), nn.Linear(2, 2)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return self.left(left) + self.right(right)


def test_a_model_of_two_inputs_predicts_from_two(tmp_path):
    x = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    parts, y = (x[:, :3], x[:, 3:]), (x[:, 0] > 0).long()
    model = tl.fit(Two(), (parts, y), epochs=1, progress=False, out=tmp_path / "run").model.eval()
    said = tl.predict(tmp_path / "run", parts, into=Two())
    torch.testing.assert_close(said.outputs, model(*parts).softmax(1).detach())
    with pytest.raises(TorchliftError, match="a tuple of 2 arrays"):
        tl.predict(tmp_path / "run", parts[0], into=Two())
    with pytest.raises(ValueError, match=r"\(2,\), the model takes \(3,\)"):
        tl.predict(tmp_path / "run", parts[::-1], into=Two())


class Named:
    """A column of classes with names, as ``datasets.ClassLabel`` is."""

    names = ("low", "high")


class Dataset:
    """Columns by name, and what they are, as ``datasets.Dataset`` has them."""

    column_names = ("input", "label")
    features = {"input": object(), "label": Named()}  # noqa: RUF012

    def __getitem__(self, name: str) -> list[object]:
        return {"input": [[k / 20 - 1.0] for k in range(40)], "label": [int(k > 20) for k in range(40)]}[name]

    def __len__(self) -> int:
        return 40


def test_a_dataset_that_names_its_classes_is_believed():
    result = tl.fit(nn.Linear(1, 2), Dataset(), epochs=1, progress=False)
    assert result.card["output"] == {"kind": "classes", "classes": ["low", "high"], "target": "label"}
    assert set(tl.predict(result.model, [[0.3]], card=result.card).labels) <= {"low", "high"}


def test_compress_takes_pictures_as_the_network_is_used_to_them(run, fails, tmp_path):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "p" / name).mkdir(parents=True)
        for number in range(12):
            image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)).save(
                tmp_path / "p" / name / f"{number}.png"
            )
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\ndef make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(48, 2))\n"
    )
    model = "compress --model net.py:make --data p --bits 4 --to s.tl"
    assert run(f"{model} --mean 0.5 --std 0.1,0.2,0.3").code == 0
    card = json.loads((tmp_path / "s.card.json").read_text())
    assert card["input"]["mean"] == [0.5] * 3
    assert card["input"]["std"] == [0.1, 0.2, 0.3]
    fails(f"{model} --mean 0.5", "pass both")
    fails(f"{model} --mean 0.5 --std 0.1,0.2", "2 numbers", "3 channels")
    fails(f"{model} --mean half --std 0.1", "numbers with commas")
    fails(f"{model} --mean 0.5 --std 0", "above 0")
    fails("compress --model mlp --data digits --to s.tl --mean 0.5 --std 1", "a folder of pictures")
    again = run("compress s.tl --data p --bits 3 --to again.tl")  # as the file says
    assert again.code == 0, again.err
    assert json.loads((tmp_path / "again.card.json").read_text())["input"] == card["input"]


def test_a_run_that_was_cut_is_measured_exported_and_predicts(run, table, tmp_path):
    cut = "--recipe channel-pruning --set ratio=0.5 --epochs 2"
    assert run(f"fit --model mlp --data t.csv {cut} --out runs/cut").code == 0
    assert run("fit --model mlp --data t.csv --epochs 1 --out runs/whole").code == 0
    sizes = [json.loads(run(f"measure runs/{name} --json").out)["params"] for name in ("cut", "whole")]
    assert sizes[0] < 0.7 * sizes[1]
    assert run("export runs/cut --to cut.pt2").code == 0
    assert run("predict runs/cut new.csv").code == 0
