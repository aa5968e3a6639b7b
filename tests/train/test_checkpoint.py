"""Atomic, durable, checked files."""

import errno
import os
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlift.errors import CheckpointError
from torchlift.train.checkpoint import (
    FORMAT,
    checkpoint_digest,
    load_checkpoint,
    pack,
    save_checkpoint,
    unpack,
)

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=8,
)


@given(TREES)
@settings(max_examples=50, deadline=None)
def test_any_tree_comes_back(tree: object) -> None:
    tensors: dict[str, torch.Tensor] = {}
    assert unpack(pack(tree, tensors, {}), tensors) == tree


def test_a_state_dict_is_stored_under_its_own_names(tmp_path: Path) -> None:
    """Any reader of safetensors can load a run's model."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    save_checkpoint(tmp_path / "model.safetensors", model.state_dict())
    stored = safetensors.torch.load_file(tmp_path / "model.safetensors")
    torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).load_state_dict(stored)
    assert all(torch.equal(stored[name], value) for name, value in model.state_dict().items())


def test_tensors_at_paths_that_read_alike_are_kept_apart(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "x", {"a": {"b": torch.zeros(2)}, "a.b": torch.ones(2)})
    assert load_checkpoint(tmp_path / "x")["a.b"].tolist() == [1, 1]


def test_tensors_of_every_kind_come_back_and_shared_ones_are_stored_once(tmp_path: Path) -> None:
    shared = torch.randn(1000)
    tree = {
        "a": shared,
        "b": [shared, torch.tensor(3.5)],
        "c": (torch.arange(4), torch.ones(2, 3).T, torch.zeros(0), torch.ones(2, dtype=torch.bfloat16)),
        0: torch.tensor([True]),
    }
    save_checkpoint(tmp_path / "x", tree)
    again = load_checkpoint(tmp_path / "x")
    assert torch.equal(again["a"], shared)
    assert again["c"][1].shape == (3, 2)
    assert again["c"][3].dtype == torch.bfloat16
    assert (tmp_path / "x").stat().st_size < 2 * shared.nbytes


def test_tensors_come_back_where_torch_puts_its_own(tmp_path: Path) -> None:
    """Products of matrices round by where these begin in memory: not at the places they have in the file."""
    tree = {str(size): torch.arange(size, dtype=torch.float32) for size in (1, 3, 7, 65)}
    save_checkpoint(tmp_path / "a.ckpt", tree)
    for name, tensor in load_checkpoint(tmp_path / "a.ckpt").items():
        assert torch.equal(tensor, tree[name])
        assert tensor.data_ptr() % 64 == 0


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_a_truncated_file_is_one_clear_line(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "x"
    save_checkpoint(path, {"a": torch.randn(100)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="damaged") as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    save_checkpoint(path, {"a": torch.randn(100)})
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match="digest"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"dtype":"F32"', b'"dtype":"I32"'), (b'"shape":[4,25]', b'"shape":[25,4]'), (b'"a":{"d', b'"b":{"d')],
)
def test_another_dtype_shape_or_name_is_noticed(tmp_path: Path, old: bytes, new: bytes) -> None:
    """The bytes of the tensors are the same: only their reading differs."""
    path = tmp_path / "x"
    save_checkpoint(path, {"a": torch.randn(4, 25)})
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(path)


@pytest.mark.parametrize("tree", ["[", '{"tensor": "b"}', '{"x": 1, "y": 2}', '{"dict": [[1]]}', '{"z": []}'])
def test_a_tree_that_makes_no_sense_is_one_clear_line(tmp_path: Path, tree: str) -> None:
    """Sealed with a right digest, as a program that writes such files by mistake would."""
    tensors = {"a": torch.ones(2)}
    meta = {"format": FORMAT, "tree": tree, "digest": checkpoint_digest(tree, tensors)}
    (tmp_path / "x").write_bytes(safetensors.torch.save(tensors, meta))
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(tmp_path / "x")


def test_a_tree_deeper_than_the_stack_is_one_clear_line(tmp_path: Path) -> None:
    tree = '{"list": [' * 20_000 + "]}" * 20_000
    meta = {"format": FORMAT, "tree": tree, "digest": checkpoint_digest(tree, {})}
    (tmp_path / "x").write_bytes(safetensors.torch.save({}, meta))
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(tmp_path / "x")


def test_another_programs_file_raises(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2)}, tmp_path / "x")
    with pytest.raises(CheckpointError, match="another version or program"):
        load_checkpoint(tmp_path / "x")


def test_what_cannot_be_stored_raises_before_writing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot hold"):
        save_checkpoint(tmp_path / "x", {"a": object()})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "x"
    save_checkpoint(path, {"a": 1})

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        save_checkpoint(path, {"a": 2})
    monkeypatch.undo()
    assert load_checkpoint(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="choose another folder"):
        save_checkpoint(tmp_path / "file" / "below" / "x", {"a": 1})
