"""What was published is data: every table and figure has a block, and entries pass it to ``fit``."""

import ast
import dataclasses
import json
import re
from pathlib import Path

import pytest
import torch

import torchlift as tl
from benchmarks import every_entry
from benchmarks.page import SOURCES, page
from papers.common import protocol as protocols
from papers.common.protocol import Drops, every_protocol, protocol, share_of, thinned
from papers.common.verdict import Value, checked, value, verdict
from papers.embedding_principle import depth_dependence
from papers.neural_lifting import lenet, table3
from papers.savarese_thesis import (
    conv6_tickets,
    mask_settings,
    one_shot_pruning,
    precision_runs,
    pruning_runs,
    sharing_runs,
    short_trainings,
    shortest_paths,
    smol_dcgan,
    smol_mobile,
    supermasks,
)
from torchlift.cli.reproduction import find_entries
from torchlift.data import Splits
from torchlift.experiments import arm

ROOT = Path(__file__).parents[2]
RECORDS = {
    path.stem.replace("_", "-"): json.loads(path.read_text())
    for path in (ROOT / "benchmarks" / "results").glob("*.json")
}
NAMES = {
    "neural_lifting": [f"Table {n}" for n in range(1, 9)] + [f"Figure {n}" for n in range(1, 5)],
    "embedding_principle": [f"Figure {n}" for n in range(1, 13)],
    "savarese_thesis": [
        f"Table {c}.{n}" for c, m in ((3, 4), (4, 3), (5, 7), (6, 2)) for n in range(1, m + 1)
    ]
    + [f"Figure {c}.{n}" for c, m in ((3, 12), (4, 13), (5, 8), (6, 7)) for n in range(1, m + 1)],
    "lifted_networks": ["Table 1", "Figure 1"],
}
"""What the sources number."""


def covered(source: str) -> set[str]:
    """Names of a source's blocks, with ranges and lists written out."""
    names: set[str] = set()
    for one in every_protocol():
        if one.source != source:
            continue
        kind, _, numbers = one.id.partition(" ")
        kind = kind.rstrip("s")
        ends = [text.split("(")[0].split(",")[0] for text in numbers.replace(" and ", " to ").split(" to ")]
        if len(ends) == 2:
            chapter, _, first = ends[0].rpartition(".")
            last = ends[1].rpartition(".")[2]
            dot = "." if chapter else ""
            names |= {f"{kind} {chapter}{dot}{n}" for n in range(int(first), int(last) + 1)}
        else:
            names.add(f"{kind} {ends[0]}")
    return names


@pytest.mark.parametrize("source", NAMES)
def test_every_table_and_figure_of_a_source_has_a_block(source):
    assert set(NAMES[source]) <= covered(source)


def test_blocks_name_entries_that_exist_or_say_why_not():
    entries = find_entries(ROOT / "papers")
    actual = list(every_protocol())
    assert {one.source for one in actual} == set(SOURCES)
    for one in actual:
        assert one.claim, one.id
        if one.entry is None:
            assert one.not_run, one.id
        else:
            assert one.entry in entries, one.entry
            assert one.checks, one.id
            assert all((one.network, one.data)), one.id


def test_every_check_of_a_record_finds_its_numbers():
    """A selector that matches nothing would pass in silence: every one has to match, or to be told why."""
    for one in every_protocol():
        record = RECORDS.get(one.record or one.entry or "")
        if record is None or record.get("stand_in"):
            continue
        said = [checked(record, check) for check in one.checks]
        unknown = [one.claim for one in said if one.holds is None]
        assert not unknown or one.not_run or record.get("partial"), (one.source, one.id, unknown)
        shown = [row for row in one.printed if "ours" in row and value(record, row["ours"]) is None]
        assert not shown or one.not_run or record.get("partial"), (one.source, one.id, shown)


def options(settings):
    """The options of an optimizer as it is built, and the rest."""
    optimizer = settings["optimizer"]([torch.nn.Parameter(torch.zeros(1))])
    return optimizer, {key: optimizer.defaults[key] for key in protocols.OPTIONS if key in optimizer.defaults}


ARMS = {
    "Table 2, SGD": (
        protocol("neural_lifting", "Table 2"), "SGD", lambda: lenet.paper_arms(1.0, True)[1].arm,
    ),
    "Table 2, lifting": (
        protocol("neural_lifting", "Table 2"), "neural lifting", lambda: lenet.paper_arms(1.0, True)[2].arm,
    ),
    "Table 2, ResNet-20": (
        protocol("neural_lifting", "Table 2"), "ResNet-20", lambda: lenet.paper_arms(1.0, True)[0].arm,
    ),
    "Table 3, 5-block": (
        protocol("neural_lifting", "Table 3"), "5-block", lambda: table3.paper_arms(7, None)[0].arm,
    ),
    **{
        f"Table 3, {name}, {blocks}": (
            protocol("neural_lifting", "Table 3"), f"{name}, {blocks}",
            lambda blocks=blocks, index=index: table3.paper_arms(blocks, None)[index].arm,
        )
        for blocks in (7, 8, 9)
        for index, name in ((1, "1-block"), (2, "1-block, neural lifting"))
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ARMS)
def test_arms_are_trained_as_their_protocol_says(name):
    published, arm, make = ARMS[name]
    printed, settings = published.arms[arm], make().merged({})
    _, built = options(settings)
    for key, wanted in printed.items():
        if key in built:
            assert built[key] == wanted, key
        elif key not in ("optimizer", "epochs", "schedule", "augment"):
            assert settings[key] == wanted, key
    if name.startswith("Table 3"):
        assert settings["epochs"] == printed.get("epochs", published.epochs)
        assert published.length(arm, 7.5) == settings["epochs"] / 10


def tiny(name, folder=None, seed=0):
    x, y = torch.rand(24, 3, 32, 32), torch.arange(24) % 10
    return Splits((x[:16], y[:16]), (x[:4], y[:4]), (x[16:], y[16:]), "classification")


class Passed(Exception):
    """What was passed to ``fit``."""


def test_entries_pass_their_protocol_to_fit(monkeypatch, tmp_path):
    """The settings that reach ``fit``: optimizer, schedule by epoch, batches, all images."""
    monkeypatch.setattr(pruning_runs, "load", tiny)
    calls = []

    def fit(model, train, *rest, **settings):
        calls.append((train, settings))
        raise Passed

    monkeypatch.setattr(tl, "fit", fit)
    monkeypatch.setattr(arm, "fit", fit)
    settings = {
        "Table 4.2": (pruning_runs.resnet20(None), "ResNet-20"),
        "Table 4.1": (pruning_runs.resnet20(None, one_shot_pruning.PUBLISHED, "SGD"), "SGD"),
        "Table 5.1": (precision_runs.published(None), "ResNet-20"),
        "Table 5.2": (smol_mobile.setting("MobileNetV2", True, None), "MobileNetV2"),
    }
    for name, (training, title) in settings.items():
        published = protocol("savarese_thesis", name)
        with pytest.raises(Passed):
            pruning_runs.trial(training, "dense", tl.Arm(), 0)
        train, passed = calls[-1]
        assert len(train[0]) == 20  # training and validation images: nothing is held out
        assert passed["epochs"] == published.epochs
        printed, (_, built) = published.arms[title], options(passed)
        assert {key: built[key] for key in ("lr", "momentum", "weight_decay")} == {
            key: printed[key] for key in ("lr", "momentum", "weight_decay")
        }
        assert passed["batch_size"] == printed["batch_size"]
        assert passed["augment"] is not None
        drops = printed["schedule"]
        for at in drops["at"]:
            before, after = (passed["schedule"]((at + d) / published.epochs) for d in (-0.5, 0.5))
            assert after == pytest.approx(before * drops["factor"])
    small = pruning_runs.sized(settings["Table 4.2"][0], 1.0, 8, "cpu")
    with pytest.raises(Passed):
        pruning_runs.trial(small, "dense", tl.Arm(), 0)
    train, passed = calls[-1]
    assert (len(train[0]), passed["epochs"], passed["device"]) == (8, 1.0, "cpu")
    assert passed["schedule"](56.5 / 85) == pytest.approx(0.1)  # the same schedule, shorter
    assert small.make is settings["Table 4.2"][0].make  # the same network
    order = sharing_runs.Order(tmp_path, 1, None, None, None)
    with pytest.raises(Passed):
        sharing_runs.side_by_side("wide", {"WRN-10-1": sharing_runs.Net(10, 1)}, tiny(""), order)
    _, built = options(calls[-1][1])
    assert built["nesterov"] is True
    assert calls[-1][1]["schedule"](0.61) == pytest.approx(0.04)


def test_conv6_and_fashion_mnist_have_the_settings_of_their_blocks(monkeypatch):
    monkeypatch.setattr(pruning_runs, "load", tiny)
    training, rounds, _, _ = conv6_tickets.setting(False, None)
    _, built = options(training.fit)
    assert (built["lr"], training.epochs, rounds) == (3e-4, 40.0, 4)
    ways = supermasks.masks(stand_in=False)
    rates = {name: options({"optimizer": way.optimizer})[1]["lr"] for name, way in ways.items()}
    gates = supermasks.StochasticMask().nodes({"w": torch.zeros(1)})["w"].options["logit"]["lr_factor"]
    assert rates["dense"] == rates["CS, s_init 0.0"] == 3e-4
    assert rates["SS, s_init 0.0"] * gates == 100
    ticket = dataclasses.replace(training, where="*")
    sweep = mask_settings.as_published(ticket)["beta_final, 50, s_init -0.3, strength 1e-08"].recipe
    assert (sweep.rounds, sweep.beta_final, sweep.s_init, sweep.strength) == (1, 50.0, -0.3, 1e-8)
    _, built = options(depth_dependence.PUBLISHED.settings("SGD"))
    assert (built["lr"], built["momentum"]) == (0.01, 0)


def test_generators_and_short_trainings_have_the_settings_of_their_blocks(monkeypatch):
    few = (torch.zeros(4, 3, 32, 32, dtype=torch.uint8), torch.zeros(4, dtype=torch.long))
    monkeypatch.setattr(smol_dcgan, "cifar10", lambda _: (few, few))
    _, built = options(smol_dcgan.setting(True, None).fit)
    assert (built["lr"], tuple(built["betas"])) == (2e-4, (0.5, 0.999))
    whole = torch.zeros(5004, 3, 32, 32, dtype=torch.uint8), torch.zeros(5004, dtype=torch.long)
    monkeypatch.setattr(short_trainings, "cifar10", lambda _: (whole, few))
    bench = short_trainings.images(None, False, None, None)
    assert (bench.batch, bench.steps, bench.decay, bench.augment) == (4, 200, 5e-4, True)
    assert [bench.drops(at / 200) for at in (59, 60, 120, 160)] == pytest.approx([1.0, 0.2, 0.04, 0.008])
    assert len(bench.valid[0]) == 5000
    full = shortest_paths.FULL
    assert (full.size, full.width, full.layers, full.samples, full.batch) == (32, 32, 20, 5000, 64)
    assert options(shortest_paths.PUBLISHED)[1]["lr"] == 0.01


def test_drops():
    assert [Drops((0.3, 0.6), 0.2)(t) for t in (0.0, 0.3, 0.9)] == pytest.approx([1.0, 0.2, 0.04])


def record(**more):
    rows = [
        {"model": "a, b", "test": {"mean": 2.0, "sd": 0.2}, "plain": 3},
        {"model": "c", "test": {"mean": 1.0, "sd": 0.2}, "plain": 3},
    ]
    return {"rows": rows, "seeds": [0, 1, 2], "scale": "all", "command": "torchlift reproduce x", **more}


def block(*checks, **more):
    return protocols.Protocol(
        "s", "Table 1", "claim", entry="x", checks=checks, epochs=10, images=100, seeds=3, **more
    )


ABOVE = {"claim": "above", "ours": "model=a, b | test", "above": "model=c | test"}
BELOW = {"claim": "below", "ours": "model=a, b | test", "below": "model=c | test"}
MISSING = {"claim": "missing", "ours": "model=d | test", "below": "model=c | test"}


@pytest.mark.parametrize(
    ("checks", "more", "word"),
    [
        ([ABOVE], {}, "reproduced"),
        ([ABOVE, BELOW], {}, "partly"),
        ([ABOVE, MISSING], {}, "partly"),
        ([BELOW], {}, "not reproduced"),
        ([MISSING], {}, "not run"),
        ([ABOVE], {"seeds": [0]}, "partly"),
        ([ABOVE], {"command": "torchlift reproduce x --epochs 5"}, "partly"),
        ([ABOVE], {"command": "torchlift reproduce x --epochs 0.5"}, "not run"),
        ([BELOW], {"command": "torchlift reproduce x --epochs 5 --images 10"}, "not run"),
        ([ABOVE], {"command": "torchlift reproduce x --epochs 5 --images 30"}, "partly"),
        ([ABOVE], {"partial": "half of it"}, "partly"),
        ([ABOVE], {"stand_in": True}, "not run"),
        ([ABOVE], {"seeds": [0, 1]}, "partly"),
    ],
)
def test_the_rule(checks, more, word):
    assert verdict(block(*checks), record(**more)).word == word


def test_settings_that_are_not_the_papers_are_partly_at_most():
    assert verdict(block(ABOVE, differs="our data"), record()).word == "partly"


def test_a_small_run_is_shown_and_decides_nothing():
    said = verdict(block(ABOVE, BELOW), record(command="torchlift reproduce x --epochs 1 --images 20"))
    assert said.why == "a small run only: 1 of 2 checks hold; 1 of 10 epochs, 20 of 100 images"
    assert [one.holds for one in said.checks] == [True, False]


def test_what_was_not_run_says_why():
    assert verdict(block(ABOVE), None).word == "not run"
    said = verdict(protocols.Protocol("s", "Figure 1", "claim", not_run="an illustration"), None)
    assert (said.word, said.why) == ("not run", "an illustration")


def test_differences_smaller_than_their_error_do_not_count():
    noisy = record()
    noisy["rows"][0]["test"]["sd"] = 5.0
    assert verdict(block(ABOVE), noisy).word == "not reproduced"


def test_numbers_are_found_by_rows_keys_and_lists():
    assert value(record(), "model=a, b | test") == Value(2.0, 0.2, 3)
    assert value(record(), "model=c | plain") == Value(3.0)
    assert value(record(), "model=d | plain") is None
    assert value(record(best=[1.0, 3.0]), "@best").mean == 2.0
    assert value(record(steps=[None, 3]), "@steps").mean == float("inf")
    assert value(record(), 0.5) == Value(0.5)
    lines = [{"name": "a, b", "x": [0, 1], "y": [0.1, 0.7]}]
    assert value(record(curves=lines), "curve a, b | 1") == Value(0.7)
    assert value(record(curves=lines), "curve a, b | 2") is None
    split = {"rows": [{"net": "a", "mean": 2.0, "sd": 0.4, "seeds": 4}]}
    assert value(split, "net=a | mean") == Value(2.0, 0.4, 4)
    plain = {"rows": [{"seed": 0, "x": 1.0}, {"seed": 1, "x": 3.0}], "seeds": [0, 1]}
    assert value({**plain, "rows": [{"a": 1, **row} for row in plain["rows"]]}, "a=1 | x").mean == 2.0


def test_the_page_has_a_row_for_every_block_and_commands_that_name_entries():
    text = page({name: one for name, one in RECORDS.items() if "finding" in one})
    entries = find_entries(ROOT / "papers")
    for one in every_protocol():
        assert f"| {one.id} | {one.claim} |" in text
    for line in text.splitlines():
        if line.startswith("- `torchlift reproduce "):
            assert line.split()[3].strip("`") in entries
    assert (ROOT / "docs" / "results.md").read_text().startswith("# What reproduced")


def test_pictures_are_drawn_light_and_dark(tmp_path):
    from benchmarks.pictures import draw

    curves = [{"name": "a < b", "x": [1, 2, 3], "y": [3.0, 2.0, 1.0]}]
    names = draw({"curves": curves, "x_label": "steps", "y_label": "loss"}, "x", tmp_path)
    light, dark = ((tmp_path / name).read_text() for name in names)
    assert light != dark
    assert "a &lt; b" in light
    assert light.count("<polyline") == 1
    assert "<polygon" not in light
    curves[0]["band"] = {"low": [2.0, 1.0, 0.5], "high": [4.0, 3.0, 2.0]}
    names = draw({"curves": curves, "x_label": "steps", "y_label": "loss"}, "x", tmp_path)
    assert (tmp_path / names[0]).read_text().count("<polygon") == 1
    assert draw({"curves": []}, "y", tmp_path) == []


ENTRIES = sorted(find_entries(ROOT / "papers"))


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_takes_less_of_the_same(name, tmp_path):
    """``torchlift reproduce NAME --images 200 --epochs 1 --seeds 1``: in ``make nightly`` only."""
    row = every_entry.attempt(name, tmp_path, 600)
    if row["ended"] == "no data":
        pytest.skip(row["said"])
    assert row["ended"] == "ran", row["said"]
    record = json.loads((tmp_path / name / f"{name}.json").read_text())
    assert record["command"].startswith(f"torchlift reproduce {name} --seeds 1 --epochs 1 --images ")


def test_every_entry_has_run_at_a_scale_of_nothing():
    """``make entries``, as recorded; a new entry is run by ``benchmarks/every_entry.py NAME --record …``."""
    assert {row["entry"]: row["ended"] for row in RECORDS["every-entry"]["rows"]} == dict.fromkeys(
        ENTRIES, "ran"
    )


def test_the_command_that_runs_entries_tells_how_each_ended(monkeypatch, tmp_path):
    ran = every_entry.attempt("depth-norms", tmp_path, 60)
    assert (ran["entry"], ran["ended"], ran["jobs"]) == ("depth-norms", "ran", 4)
    assert ran["said"].startswith("linearity early in training")
    monkeypatch.setattr(every_entry, "run_entry", lambda *_: 1 / 0)
    failed = every_entry.attempt("figure3", tmp_path, 60)
    assert (failed["ended"], failed["said"]) == ("failed", "ZeroDivisionError: division by zero")
    done = every_entry.summary({"figure3": failed, "depth-norms": ran}, ["depth-norms", "figure3", "table3"])
    assert (done["ran"], done["did not run"]) == (1, ["figure3", "table3"])
    assert [row["entry"] for row in done["rows"]] == ["depth-norms", "figure3"]
    assert done["CPU seconds"] == pytest.approx(ran["CPU seconds"] + failed["CPU seconds"])


def test_random_images_stand_where_files_are_missing(monkeypatch, tmp_path):
    def missing(entry, settings, *_):
        for read in (tl.data.fashion_mnist, tl.data.cifar100):
            (x, y), test = read(settings.get("data"))
            assert (len(x), len(test[0])) == (every_entry.RANDOM, every_entry.RANDOM)
            assert 0 < y.max() < (100 if read is tl.data.cifar100 else 10)

    monkeypatch.setattr(every_entry, "run_entry", missing)
    monkeypatch.setenv("TORCHLIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TORCHLIFT_DATA", raising=False)
    monkeypatch.setattr("torchlift.data.sources.INSTALLED", tmp_path / "installed")
    assert every_entry.attempt("figure3", tmp_path, 60)["ended"] == "no data"
    (tmp_path / "sets").mkdir()
    monkeypatch.setenv("TORCHLIFT_DATA", str(tmp_path / "sets"))
    row = every_entry.attempt("figure3", tmp_path, 60)
    assert (row["ended"], row["random images"]) == ("failed", True)  # read, but no record was written
    assert row["said"] == ""


def test_sweeps_thin_out_where_little_of_the_training_is_wanted():
    assert share_of(8.5, 85, 50_000, 50_000) == share_of(85, 85, 5_000, 50_000) == 1
    assert share_of(1, 85, 25_000, 50_000) == pytest.approx(10 / 170)
    values = tuple(range(11))
    assert thinned(values, 1.0) == list(values)
    assert thinned(values, 0.3) == [0, 3, 7, 10]
    assert thinned(values, 0.1) == [0, 10]
    assert thinned(values, 1e-6) == [5]


def taken(entry):
    """The options of an entry."""
    run = next(one for one in ast.parse(entry.file.read_text()).body if getattr(one, "name", "") == "run")
    return {argument.arg for argument in run.args.args} - {"out"}


def test_every_entry_takes_fewer_epochs_images_and_seeds():
    more = {"device", "stand_in", "as_published", "arms"}
    for entry in find_entries(ROOT / "papers").values():
        assert (
            {"data", "seeds", "epochs", "images"}
            <= taken(entry)
            <= {"data", "seeds", "epochs", "images"} | more
        )


def test_commands_of_records_can_be_given_and_have_their_seeds():
    entries, wrong = find_entries(ROOT / "papers"), []
    for name, one in RECORDS.items():
        if not isinstance(one, dict) or "command" not in one or not one["command"].startswith("torchlift"):
            continue
        _, verb, entry, *words = one["command"].split()
        options = {word.removeprefix("--").replace("-", "_") for word in words if word.startswith("--")}
        seeds = int(words[words.index("--seeds") + 1]) if "--seeds" in words else None
        if (
            verb != "reproduce"
            or not options <= taken(entries[entry])
            or seeds not in (None, len(one["seeds"]))
            or bool(one.get("stand_in")) > ("stand_in" in options or entry.startswith("one-shot"))
        ):
            wrong.append((name, one["command"]))
    assert wrong == []


DOCUMENTS = (
    *ROOT.glob("docs/measured/*.md"),
    *ROOT.glob("docs/methods/*.md"),
    ROOT / "docs/what-paid-off.md",
)


def test_documents_give_the_commands_of_their_records():
    """But where a record is partial, or an earlier one is named by its commit."""
    whole = {
        name: one["command"] for name, one in RECORDS.items() if "command" in one and "partial" not in one
    }
    wrong = [
        (document.name, command)
        for document in DOCUMENTS
        for line in document.read_text().splitlines()
        if "commit " not in line
        for command in re.findall("`(torchlift reproduce [^`]*)`", line)
        if whole.get(command.split()[2], command) != command
    ]
    assert wrong == []


@pytest.mark.parametrize("name", ["figure3", "delayed-adam"])
def test_a_sample_of_entries_takes_less_of_the_same(name, tmp_path):
    result = find_entries(ROOT / "papers")[name].run(tmp_path, seeds=1, epochs=200, images=20)
    assert result["command"].endswith("--seeds 1 --epochs 200 --images 20")
