"""fit, report, measure and compare, end to end on a few hundred bytes of data."""

import json
import tomllib
from pathlib import Path

import pytest
import torch

FIT = "fit --model mlp --arg hidden=[8] --data blobs.npz --epochs 2 --out a"


def test_fit_leaves_a_run_and_a_report(run, blobs):
    ran = run(FIT)
    assert ran.code == 0
    assert "accuracy (test)" in ran.out
    assert "a/report.html" in ran.out
    folder = blobs.parent / "a"
    for name in ("run.toml", "history.jsonl", "result.json", "model.safetensors", "report.html"):
        assert (folder / name).stat().st_size > 0


def test_json_is_all_there_is_on_stdout(run, blobs):
    said = json.loads(run(FIT + " --json").out)
    assert said["report"] == "a/report.html"
    assert 0 <= said["results"]["test"] <= 1
    assert said["cost"]["epochs"] == pytest.approx(2)


def test_a_used_folder_asks_for_resume_or_overwrite(run, fails, blobs):
    assert run(FIT).code == 0
    fails(FIT, "--resume", "--overwrite")
    assert run(FIT + " --resume").code == 0
    assert run(FIT + " --overwrite").code == 0


def test_a_file_holds_all_of_it(run, blobs, tmp_path):
    (tmp_path / "run.toml").write_text(
        'model = "mlp"\ndata = "blobs.npz"\nepochs = 3\nrecipe = "neural-lifting"\noptimizer = "sgd"\n'
        'lr = 0.1\nout = "b"\nschedule = "cosine"\nbatch_size = 32\n'
        '[arg]\nhidden = [8]\n[opt]\nmomentum = 0.9\n[set]\nwhere = "linear1"\nuntil = [1, 1, 1]\n'
    )
    ran = run("fit --config run.toml --seed 7 --json")
    assert ran.code == 0, ran.err
    record = tomllib.loads((tmp_path / "b" / "run.toml").read_text())
    assert record["settings"]["seed"] == 7
    assert record["settings"]["batch_size"] == 32
    assert record["recipe"]["class"].endswith(":NeuralLifting")
    assert record["recipe"]["fields"]["where"] == "linear1"
    assert record["settings"]["optimizer"]["options"]["momentum"] == 0.9
    phases = [
        json.loads(line)["phase"] for line in (tmp_path / "b" / "history.jsonl").read_text().splitlines()
    ]
    assert phases == ["base", "lifted", "project"]


def test_the_users_own_model_recipe_and_data(run, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def make(width=4):\n    return nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 2))\n"
        "def recipe(task, fit):\n    fit(task, name='mine')\n    return task\n"
        "def data():\n    x = torch.randn(64, 3)\n    y = (x[:, 0] > 0).long()\n    return (x, y), (x, y)\n"
    )
    ran = run(
        "fit --model mine.py:make --arg width=5 --recipe mine.py:recipe --data mine.py:data --epochs 1 --json"
    )
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["after"]["params"] == 3 * 5 + 5 + 2 * 5 + 2
    assert "mine.recipe" in json.loads(ran.out)["recipe"]


def test_a_lift_is_a_recipe(run, blobs):
    ran = run(FIT + " --recipe torchlift.lifts:Expand --set rank=0.5 --json")
    assert "Expand(where='*weight', rank=0.5" in json.loads(ran.out)["recipe"]


def test_report_draws_again_and_also_the_unfinished(run, blobs):
    run(FIT)
    folder = blobs.parent / "a"
    (folder / "report.html").unlink()
    assert run("report a").out.strip() == "a/report.html"
    (folder / "result.json").unlink()
    assert run("report a --json").code == 0
    assert "not finished" in (folder / "report.html").read_text()


def test_measure_reads_the_runs_weights(run, blobs):
    run(FIT)
    ran = run("measure --model mlp --arg hidden=[8] --data blobs.npz --weights a/model.safetensors --json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["params"] == 4 * 8 + 8 + 8 * 2 + 2
    table = run("measure --model lenet5 --example 1,3,32,32").out
    assert "70,346" in table


def test_compress_makes_a_runs_model_small(run, blobs):
    run(FIT)
    model = "--model mlp --arg hidden=[8] --data blobs.npz --weights a/model.safetensors"
    ran = run(f"compress {model} --bits 4 --to small.tl --json")
    assert ran.code == 0, ran.err
    card = json.loads(ran.out)
    assert card["achieved"]["bytes"] < card["before"]["bytes"]
    assert run("measure --weights small.tl --data blobs.npz").code == 0
    assert run("report small.tl").out.strip() == "small.html"
    page = Path("small.html").read_text()
    for words in ("linear1.weight", "8×4", "bits per weight", "output error", "was", "Where it comes from"):
        assert words in page, words
    assert "pass --data" in run("compress --model mlp --example 1,4 --to small.tl").err


def test_a_page_of_a_model_with_its_weights(run, fails, blobs):
    run(FIT)
    model = "--model mlp --arg hidden=[8] --data blobs.npz --weights a/model.safetensors"
    assert run(f"report {model} --to net.html").out.strip() == "net.html"
    page = Path("net.html").read_text()
    assert "linear1.weight" in page
    assert "multiply" in page
    fails("report", "pass a run's folder, a packed file, or --model with --weights")
    fails("report --model lenet5 --example 1,3,32,32", "pass --to page.html")


def test_a_page_of_a_file_that_holds_weights_alone(run, blobs):
    Path("own.py").write_text(
        "from torch import nn\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.only = nn.Linear(4, 2)\n\n    def forward(self, x):\n        return self.only(x)\n"
    )
    assert run("fit --model own.py:Net --data blobs.npz --epochs 1 --out a").code == 0
    assert run("report a/model.tl --to closed.html").code == 0
    closed = Path("closed.html").read_text()
    assert "holds weights alone" in closed
    assert "only.weight" not in closed
    assert run("report a/model.tl --model own.py:Net --to open.html").code == 0
    assert "only.weight" in Path("open.html").read_text()


def test_measure_counts_the_zeros_of_other_files_too(run, tmp_path):
    from safetensors.torch import save_file

    from torchlift.models import MLP

    state = MLP(4, 8, 10).state_dict()
    save_file({name: torch.zeros_like(tensor) for name, tensor in state.items()}, tmp_path / "w.safetensors")
    ran = run("measure --model mlp --arg hidden=[8] --example 2,4 --weights w.safetensors --json")
    assert json.loads(ran.out)["nonzero"] == 0


def test_tokens_as_examples(run):
    ran = run(
        "measure --model gpt --arg vocabulary=11 --arg width=8 --arg heads=2 --arg depth=1 --example 2,6:int"
    )
    assert ran.code == 0, ran.err


def test_compare_with_settings_for_each(run, blobs, tmp_path):
    ran = run(
        "compare --model mlp --arg hidden=[8] --data blobs.npz --budget 2 --seeds 2 --out c --json "
        "--recipe wide=expand --recipe expand --set side=both --set wide.rank=2"
    )
    assert ran.code == 0, ran.err
    said = json.loads(ran.out)
    assert list(said["recipes"]) == ["plain", "wide", "expand"]
    assert "rank=2.0, side='both'" in said["recipes"]["wide"]["settings"]["recipe"]
    assert "rank=1.0, side='both'" in said["recipes"]["expand"]["settings"]["recipe"]
    assert len(said["recipes"]["wide"]["test"]) == 2
    assert (tmp_path / "c" / "comparison.json").is_file()
    assert (tmp_path / "c" / "report.html").is_file()


def test_compare_tunes_and_prices_by_time(run, blobs, tmp_path):
    ran = run(
        "compare --model mlp --arg hidden=[4] --data blobs.npz --budget 1 --seeds 1 --tune 1 "
        "--time 1x --out t --json --recipe normalize"
    )
    assert ran.code == 0, ran.err
    stored = json.loads((tmp_path / "t" / "comparison.json").read_text())
    assert [one["tuning"]["trials"] for one in stored["recipes"].values()] == [1, 1]
    assert stored["time"] > 0


def test_auto_finds_a_model_and_says_why(run, blobs, tmp_path):
    ran = run(
        "auto --model mlp --arg hidden=[4] --data blobs.npz --budget 4 --bytes 1.5k --recipe smol --out a"
    )
    assert ran.code == 0, ran.err
    assert "▸" in ran.out
    stored = json.loads((tmp_path / "a" / "auto.json").read_text())
    assert stored["constraints"] == "file ≤ 1,500 bytes"
    assert (tmp_path / "a" / "report.html").exists()
    assert (tmp_path / "a" / "model.tl").stat().st_size == stored["chosen"]["bytes"]
    assert "--bytes takes" in run("auto --model mlp --data blobs.npz --bytes much --out b").err


def test_compare_goes_on(run, blobs):
    command = "compare --model mlp --data blobs.npz --budget 2 --seeds 1 --recipe expand --out c"
    assert run(command).code == 0
    assert run(command).code == 2
    ran = run(command + " --resume")
    assert ran.code == 0
    assert "expand" in ran.out
    assert "report: c/report.html" in ran.out


def test_export(run, blobs, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    for options in ("", " --integer"):
        ran = run(f"export --model mlp --arg hidden=[8] --data blobs.npz --to net.onnx --json{options}")
        assert ran.code == 0, ran.err
        assert json.loads(ran.out)["bytes"] == (tmp_path / "net.onnx").stat().st_size > 0
    assert json.loads(ran.out)["ratio"] > 0
    assert "pass --data" in run("export --model mlp --example 1,4 --to n.onnx --integer").err
