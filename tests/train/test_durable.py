"""Nothing is lost: killed runs resume bit for bit, two processes agree with one."""

import json
import os
import signal
from pathlib import Path

import pytest
import ranks
import torch
from safetensors.torch import load_file
from torch import nn

import every_recipe
import forked
import torchlift as tl
from torchlift.errors import CheckpointError
from torchlift.train import Interrupted
from train.run.runs import stored_rows

HERE = Path(__file__).parent
LIFTED = ("contrastive", "contrastive sweeps", "isgm", "bcd", "bcd in one batch", "splitting")


def python(*arguments: str) -> str:
    done = forked.python(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


KILLED = ("plain", "two cycles", "mask then tune", "bits", *LIFTED)
OFTEN = [pytest.param(recipe, 20, marks=pytest.mark.fuzz) for recipe in KILLED]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "kills"), [("plain", 8), ("mask then tune", 4), ("bits", 4), ("bcd", 4), *OFTEN]
)
def test_kills_change_nothing(tmp_path: Path, recipe: str, kills: int) -> None:
    done = python(str(HERE / "lives.py"), str(tmp_path), recipe, str(kills), "1")
    killed, finished = map(int, done.split())
    assert killed >= kills
    assert finished >= 1


@pytest.mark.slow
def test_every_recipe_survives_random_kills(tmp_path: Path) -> None:
    """The resume matrix: one of each recipe there is, killed at random, ends with the same bits."""
    lines = python(str(HERE / "lives.py"), str(tmp_path), "every", "1", "1").splitlines()
    assert len(lines) == len(every_recipe.one_each()), lines
    assert all(int(line.split()[0]) == 1 for line in lines)


@pytest.mark.slow
def test_two_processes_do_what_one_does(tmp_path: Path) -> None:
    """Batch statistics and dropout too; dropout inside torch's own recurrent layer is each process's own."""
    apart = alone_and_by_two(tmp_path)
    assert apart.pop("recurrent dropout") > 1e-3, "no exception any more: say so in docs/runs.md"
    assert len(apart) == len(ranks.CASES) - 1 + len(ranks.MATRICES)
    assert max(apart.values()) <= 1e-6, apart


@pytest.mark.slow
def test_every_recipe_does_in_two_processes_what_it_does_in_one(tmp_path: Path) -> None:
    """The two-process matrix: one of each recipe there is."""
    apart = alone_and_by_two(tmp_path, "every")
    assert len(apart) == len(every_recipe.one_each())
    assert max(apart.values()) <= 1e-6, apart


def alone_and_by_two(root: Path, *which: str) -> dict[str, float]:
    """The largest difference of weights and of losses in the history, for each run of ranks.py."""
    script = str(HERE / "ranks.py")
    python(script, str(root / "one"), *which)
    forked.torchrun(script, str(root / "two"), *which)
    apart: dict[str, float] = {}
    for folder in sorted((root / "one").iterdir()):
        paths = (folder, root / "two" / folder.name)
        one, two = (load_file(path / "model.safetensors") for path in paths)
        assert one.keys() == two.keys()
        weights = max(float((one[key] - two[key]).abs().max()) for key in one)
        first, second = ([row["train_loss"] for row in stored_rows(path)] for path in paths)
        losses = max(abs(a - b) for a, b in zip(first, second, strict=True))
        apart[folder.name] = max(weights, losses)
    return apart


def data() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    return x, (x.sum(1) > 0).long()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 2))


def run(out: Path | None, **changes: object) -> tl.Result:
    settings = {"epochs": 4, "batch_size": 16, "progress": False, "save_every": 0.0} | changes
    return tl.fit(model(), data(), data(), out=out, **settings)


def assert_same(one: nn.Module, two: nn.Module) -> None:
    for (name, a), b in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_run_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    reference = run(None)
    rows: list[dict[str, object]] = []

    def stop(row: dict[str, object]) -> None:
        rows.append(row)
        if len(rows) == 2:
            os.kill(os.getpid(), number)

    with pytest.raises(Interrupted, match="resume=True"):
        run(tmp_path, listener=stop)
    resumed = run(tmp_path, resume=True)
    assert_same(resumed.model, reference.model)
    assert [row["epoch"] for row in resumed.history] == [1, 2, 3, 4]
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3, 4]


def test_a_finished_run_replays(tmp_path: Path) -> None:
    first = run(tmp_path)
    again = run(tmp_path, resume=True)
    assert_same(first.model, again.model)
    assert again.history == first.history
    assert again.cost == first.cost == 4.0


def test_a_used_folder_raises_unless_told_how(tmp_path: Path) -> None:
    run(tmp_path, epochs=1)
    with pytest.raises(CheckpointError, match=r"resume=True.*overwrite=True"):
        run(tmp_path, epochs=1)
    (tmp_path / "mine.txt").write_text("kept")
    run(tmp_path, epochs=2, overwrite=True)
    assert (tmp_path / "mine.txt").exists()
    with pytest.raises(CheckpointError, match="epochs = 2, now it is 3"):
        run(tmp_path, epochs=3, resume=True)


def test_another_model_recipe_or_version_raises(tmp_path: Path) -> None:
    run(tmp_path, epochs=1)
    with pytest.raises(CheckpointError, match="model"):
        tl.fit(nn.Linear(4, 2), data(), data(), out=tmp_path, resume=True, epochs=1, batch_size=16)
    with pytest.raises(CheckpointError, match="recipe"):
        run(tmp_path, epochs=1, resume=True, recipe=tl.lifts.SoftMask())
    record = tmp_path / "run.toml"
    record.write_text(record.read_text().replace(tl.__version__, "0.0.1"))
    with pytest.raises(CheckpointError, match=r"torchlift = '0\.0\.1'"):
        run(tmp_path, epochs=1, resume=True)
    record.write_text("= broken")
    with pytest.raises(CheckpointError, match="damaged"):
        run(tmp_path, epochs=1, resume=True)


def test_a_truncated_checkpoint_names_itself_and_the_one_before_still_works(tmp_path: Path) -> None:
    reference = run(None)

    def stop(row: dict[str, object]) -> None:
        if row["epoch"] == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        run(tmp_path, listener=stop)
    before, newest = sorted((tmp_path / "fits" / "0000").glob("step-*"))
    newest.write_bytes(newest.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match="delete it to go on"):
        run(tmp_path, resume=True)
    newest.unlink()
    assert before.exists()
    assert_same(run(tmp_path, resume=True).model, reference.model)


def test_a_full_disk_stops_the_run_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.fsync, [0]

    def full(handle: int) -> None:
        calls[0] += 1
        if calls[0] > 8:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        run(tmp_path)
    monkeypatch.undo()
    assert not list(tmp_path.rglob("*.tmp"))
    assert_same(run(tmp_path, resume=True).model, run(None).model)


def test_a_remembered_value_is_computed_once(tmp_path: Path) -> None:
    calls = tmp_path / "calls"  # not a list in the closure: a changed one would be another recipe

    def recipe(task: tl.Task, fit: object) -> tl.Task:
        def halves() -> dict[str, object]:
            assert not calls.exists()
            calls.write_text("once")
            return {"weights": [p.detach() / 2 for p in task.parameters()], "factor": 0.5, "name": ("a", 1)}

        value = fit.remember("halve", halves)
        assert (value["factor"], value["name"]) == (0.5, ("a", 1))
        with torch.no_grad():
            for parameter, half in zip(task.parameters(), value["weights"], strict=True):
                parameter.copy_(half)
        fit(task, name="tune")
        return task

    first = run(tmp_path / "run", recipe=recipe)
    again = run(tmp_path / "run", recipe=recipe, resume=True)
    assert calls.read_text() == "once"
    assert_same(first.model, again.model)


def test_loaders_resume_at_the_epoch_with_their_own_generator(tmp_path: Path) -> None:
    def loader() -> torch.utils.data.DataLoader:
        dataset = torch.utils.data.StackDataset(*data())
        generator = torch.Generator().manual_seed(3)
        return torch.utils.data.DataLoader(dataset, batch_size=16, shuffle=True, generator=generator)

    def go(out: Path | None, **more: object) -> tl.Result:
        return tl.fit(model(), loader(), data(), out=out, epochs=4, save_every=0.0, progress=False, **more)

    def stop(row: dict[str, object]) -> None:
        if row["epoch"] == 2:
            os.kill(os.getpid(), signal.SIGINT)

    reference = go(None)
    with pytest.raises(Interrupted):
        go(tmp_path, listener=stop)
    assert_same(go(tmp_path, resume=True).model, reference.model)


def test_channels_last_weights_resume_bit_for_bit(tmp_path: Path) -> None:
    """Fused steps go by memory: moments of a checkpoint must lie as the weights do."""
    x = torch.randn(48, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    data = (x, (x.mean((1, 2, 3)) > 0).long())

    def go(**changes: object) -> tl.Result:
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(64, 2)
        model = nn.Sequential(*layers).to(memory_format=torch.channels_last)
        return tl.fit(model, data, data, epochs=4, batch_size=16, progress=False, **changes)

    rows: list[object] = []

    def stop(row: object) -> None:
        rows.append(row)
        if len(rows) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        go(out=tmp_path, listener=stop)
    assert_same(go(out=tmp_path, resume=True).model, go().model)
