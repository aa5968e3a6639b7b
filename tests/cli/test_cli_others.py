"""demo, doctor, tune: thin shells, but each must work."""

import importlib.metadata
import json
import tomllib

import pytest


def test_demo(run, tmp_path):
    pytest.importorskip("sklearn")
    ran = run("demo --budget 0.5 --seeds 1 --out d --json")
    assert ran.code == 0, ran.err
    assert (tmp_path / "d" / "report.html").is_file()
    assert (tmp_path / "d" / "before-after.svg").read_text().startswith("<svg")
    said = json.loads(ran.out)
    assert len(said["recipes"]) >= 3
    sizes = {row["name"]: row["bytes"] for row in said["delivered"]}
    assert sizes["folded norm, few bits"] < sizes["plain"] / 8
    assert sizes["folded norm, compressed"] < sizes["plain"] / 8
    predicted = json.loads(run(f"{said['use'].removeprefix('torchlift ')} --json").out)
    assert len(predicted["rows"]) == 12


def test_doctor(run, monkeypatch, tmp_path):
    actual = checks(run)
    assert actual["torch"]["state"] == "ok"
    assert actual["data"]["fix"] == "export TORCHLIFT_DATA=…"
    monkeypatch.setenv("TORCHLIFT_DATA", str(tmp_path))
    assert f"✓ data          {tmp_path}" in run("doctor").out


def checks(run):
    """What ``doctor`` says of each thing."""
    ran = run("doctor --json")
    assert ran.code == 0
    return {check["name"]: check for check in json.loads(ran.out)["checks"]}


def test_doctor_says_what_is_missing(run, monkeypatch):
    def missing(package):
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    actual = checks(run)
    assert actual["[tune]"]["state"] == "missing"
    assert actual["[tune]"]["fix"] == "pip install 'torchlift[tune]'"
    assert "torchvision" not in actual


def test_doctor_warns_of_torchvision_beside_a_cpu_build(run, monkeypatch):
    import torch

    monkeypatch.setattr(importlib.metadata, "version", lambda package: "0.99")
    monkeypatch.setattr(torch.version, "cuda", None)
    check = checks(run)["torchvision"]
    assert (check["state"], check["fix"]) == ("warning", "pip uninstall torchvision")


def test_doctor_fails_where_nothing_can_be_written(run, tmp_path):
    (tmp_path / "file").write_text("")
    ran = run("doctor --out file/runs")
    assert ran.code == 1
    assert "✗ out" in ran.out


def test_tune_writes_a_file_that_fit_takes(run, blobs, tmp_path):
    ran = run(
        "tune --model mlp --arg hidden=[8] --data blobs.npz --recipe neural-lifting --set where=linear1 "
        "--set until=1 --space mix=0.1:0.6 --space lr=0.001,0.1 --space opt.weight_decay=1e-5:1e-2:log "
        "--trials 2 --epochs 1 --folds 2 --out t --json"
    )
    assert ran.code == 0, ran.err
    said = json.loads(ran.out)
    assert set(said["best"]) == {"mix", "lr", "opt.weight_decay"}
    best = tomllib.loads((tmp_path / "t" / "best.toml").read_text())
    assert best["lr"] == said["best"]["lr"]
    assert best["set"] == {"where": "linear1", "until": 1, "mix": said["best"]["mix"]}
    assert best["opt"] == {"weight_decay": said["best"]["opt.weight_decay"]}
    ran = run("fit --config t/best.toml --out f --json")
    assert f"mix={said['best']['mix']!r}" in json.loads(ran.out)["recipe"]
    assert run("report t").code == 0


def test_tune_avagrad_by_two_line_searches(run, blobs):
    ran = run("tune --model mlp --data blobs.npz --optimizer avagrad --epochs 1 --out t --json")
    assert ran.code == 0, ran.err
    said = json.loads(ran.out)
    assert len(said["trials"]) == 7 + 6
    assert set(said["best"]) == {"lr", "opt.eps"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("--space lr=1:0", ["low < high"]),
        ("--space lr=a:b", ["low:high"]),
        ("--space rate=0.1:1", ["'rate'", "opt.<option>"]),
        ("--space opt.momentun=0.1:0.9 --optimizer sgd", ["'momentun'", "momentum"]),
        ("--folds 1000", ["folds", "96 samples"]),
        ("--method lines --space lr=0.1:1", ["choice"]),
        ("--recipe plain --recipe best-of", ["one recipe"]),
        ("--workers 0", ["--workers"]),
    ],
)
def test_bad_settings_of_tune_fail(fails, blobs, more, words):
    fails(f"tune --model mlp --data blobs.npz --epochs 1 --trials 1 --out t {more}", *words)
