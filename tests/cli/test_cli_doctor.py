"""doctor --run: what a folder holds, whether it is whole, whose it is, what to do."""

import json
import os

from torchlift import compare
from train.run.runs import data, model
from train.run.runs import run as small


def checks(run, folder, code=0):
    ran = run(f"doctor --run {folder} --json")
    assert ran.code == code, ran.out + ran.err
    return {check["name"]: check for check in json.loads(ran.out)["checks"]}


def states(actual):
    return {name: check["state"] for name, check in actual.items()}


def test_a_finished_run(run, tmp_path):
    small(tmp_path / "a")
    actual = checks(run, "a")
    assert states(actual) == dict.fromkeys(["record", "fits", "history", "end"], "ok")
    assert "1 finished, 0 checkpoints" in actual["fits"]["detail"]
    assert "2 rows" in actual["history"]["detail"]
    assert "✓ record" in run("doctor --run a").out


def test_no_run_and_strangers(run, tmp_path):
    assert "would make it" in checks(run, "nowhere")["record"]["detail"]
    (tmp_path / "a").mkdir()
    assert checks(run, "a")["record"]["detail"] == "no run here"
    (tmp_path / "a" / "model.safetensors").write_text("mine")
    actual = checks(run, "a", code=1)["record"]
    assert "model.safetensors" in actual["detail"]
    assert actual["fix"] == "choose another folder"
    (tmp_path / "a" / "run.toml").write_text("= broken")
    assert "damaged" in checks(run, "a", code=1)["record"]["detail"]


def test_damage_and_leftovers_and_how_to_mend_them(run, tmp_path):
    small(tmp_path / "a")
    final = tmp_path / "a" / "fits" / "0000" / "final.safetensors"
    whole = final.read_bytes()
    final.write_bytes(whole[:-5])
    actual = checks(run, "a", code=1)
    assert actual["checkpoint"]["fix"] == "rm a/fits/0000/final.safetensors"
    final.write_bytes(whole)
    (tmp_path / "a" / ".run.toml.0123abcd.tmp").write_text("half")
    (tmp_path / "a" / "result.json").unlink()
    with (tmp_path / "a" / "history.jsonl").open("ab") as file:
        file.write(b'{"half')
    actual = checks(run, "a")
    assert states(actual) | {"leftovers": "warning", "history": "warning", "end": "missing"} == states(actual)
    with (tmp_path / "a" / "history.jsonl").open("ab") as file:
        file.write(b"\n")
    damaged = checks(run, "a", code=1)["history"]
    assert "in line 3" in damaged["detail"]
    assert "--overwrite" in damaged["fix"]
    (tmp_path / "a" / "model.safetensors").write_bytes(b"")
    assert "model" in checks(run, "a", code=1)


def test_locks(run, tmp_path):
    lock, texts = tmp_path / "a" / ".lock", []
    small(tmp_path / "a", listener=lambda row: texts.append(lock.read_text()))
    lock.write_text(texts[0])
    assert f"locked by process {os.getpid()}" in checks(run, "a")["lock"]["detail"]
    lock.write_text(json.dumps(json.loads(texts[0]) | {"boot": "an earlier one"}))
    assert "which is gone" in checks(run, "a")["lock"]["detail"]
    lock.write_text("")
    assert "names no process" in checks(run, "a")["lock"]["detail"]


def test_an_interrupted_overwrite_and_a_run_without_a_checkpoint(run, tmp_path):
    small(tmp_path / "a")
    (tmp_path / "a" / ".old-0123").mkdir()
    assert checks(run, "a")["overwrite"]["state"] == "warning"
    (tmp_path / "a" / "fits" / "0000" / "final.safetensors").unlink()
    assert checks(run, "a")["fits"]["state"] == "missing"


def test_a_comparison_tells_of_its_runs(run, tmp_path):
    compare(model, data(), data(), data(), recipes={}, seeds=1, budget=1, progress=False, out=tmp_path / "c")
    assert states(checks(run, "c")) == {"record": "ok", "end": "ok"}
    (tmp_path / "c" / "plain-0" / "fits" / "0000" / "final.safetensors").write_bytes(b"")
    assert "checkpoint" in checks(run, "c", code=1)["plain-0"]["detail"]
