"""Whatever is in a checkpoint, a record or a history: the value that was saved, or one line."""

import contextlib
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import forging  # noqa: F401  (finds the fuzzers' targets)
from torchlift.errors import CheckpointError
from torchlift.journal import Journal
from torchlift.train.checkpoint import FORMAT, checkpoint_digest, load_checkpoint, save_checkpoint
from torchlift.train.history import read_history
from torchlift.train.run import arguments
from torchlift.train.run.record import differences, headed, read_record, to_toml
from torchlift.train.run.values import as_toml_value, decode

CORPUS = sorted((Path(__file__).parent / "corpus").iterdir())
TREE = {
    "problem": {"w": torch.arange(6.0).view(2, 3), "n": torch.tensor(3)},
    "name": "fit",
    "rows": [1, None, (2.5,)],
}
many = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
EDITS = st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=4), st.integers(0, 4)), min_size=1, max_size=3)


def edited(content: bytes, edits: list[tuple[float, bytes, int]]) -> bytes:
    """Some bytes removed, some put in their place, here and there."""
    for where, new, gone in edits:
        start = int(where * len(content))
        content = content[:start] + new + content[start + gone :]
    return content


def loaded(path: Path, content: bytes) -> Any:
    """What the bytes load as; None where they raise one line."""
    path.write_bytes(content)
    try:
        return load_checkpoint(path)
    except CheckpointError as error:
        if "\n" in str(error):
            raise
        return None


@given(EDITS)
@many
def test_an_edited_checkpoint_is_itself_or_raises(
    tmp_path: Path, edits: list[tuple[float, bytes, int]]
) -> None:
    save_checkpoint(tmp_path / "x", TREE)
    actual = loaded(tmp_path / "y", edited((tmp_path / "x").read_bytes(), edits))
    if actual is not None:
        assert torch.equal(actual["problem"]["w"], TREE["problem"]["w"])
        assert (actual["name"], actual["rows"]) == (TREE["name"], TREE["rows"])


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["tensor", "dict", "list", "tuple", "x"]), inner, max_size=2)
    ),
    max_leaves=10,
)


@given(JSON)
@example({"dict": [[{"list": []}, 1]]})
@many
def test_a_resealed_tree_is_read_or_raises(tmp_path: Path, tree: object) -> None:
    tensors, text = {"a": torch.ones(2)}, json.dumps(tree)
    meta = {"format": FORMAT, "tree": text, "digest": checkpoint_digest(text, tensors)}
    loaded(tmp_path / "x", safetensors.torch.save(tensors, meta))


RECORD = to_toml(
    headed("fit", "0" * 16, {"recipe": {"class": "torchlift.methods.plain:Plain", "fields": {}}})
)


@given(EDITS)
@many
def test_an_edited_record_is_read_or_raises(tmp_path: Path, edits: list[tuple[float, bytes, int]]) -> None:
    record_is_safe(tmp_path, edited(RECORD, edits))


def record_is_safe(folder: Path, content: bytes) -> None:
    (folder / "run.toml").write_bytes(content)
    with contextlib.suppress(CheckpointError):
        assert read_record(folder) == tomllib.loads(content.decode())
        arguments(folder)


@given(EDITS)
@many
def test_an_edited_history_gives_its_rows_or_one_line(
    tmp_path: Path, edits: list[tuple[float, bytes, int]]
) -> None:
    row = {"epoch": 1, "loss": 0.5}
    (tmp_path / "h").write_bytes(edited(Journal(tmp_path / "h").encode(row) * 3, edits))
    with contextlib.suppress(CheckpointError):
        assert all(one == row for one in read_history(tmp_path / "h"))


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_the_kept_corpus(tmp_path: Path, path: Path) -> None:
    """Files that once did harm, or might have."""
    if path.suffix == ".toml":
        record_is_safe(tmp_path, path.read_bytes())
    else:
        assert loaded(tmp_path / "x", path.read_bytes()) is None


GUIDED = sorted((Path(__file__).parents[1] / "corpus").iterdir())


@pytest.mark.parametrize("folder", GUIDED, ids=lambda folder: folder.name)
def test_what_guided_fuzzing_kept_is_read_or_raises(folder: Path) -> None:
    """``benchmarks/guided_fuzz.py`` found these by the code they reach: an error that is not ours raises."""
    from fuzz_targets import TARGETS

    said = {TARGETS[folder.name](path.read_bytes()) for path in folder.iterdir()}
    assert said <= {"read", "raised"}
    assert "raised" in said


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(
            st.text(max_size=5) | st.sampled_from(["class", "none", "import"]), inner, max_size=3
        )
        | st.dictionaries(st.integers(), inner, max_size=2)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_any_setting_survives_toml(value: object) -> None:
    record = headed("fit", "1", {"settings": {"x": as_toml_value(value)}})
    stored = tomllib.loads(to_toml(record).decode())
    assert not list(differences(record, stored))
    assert decode(stored["settings"]["x"]) == value
