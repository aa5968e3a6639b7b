"""A disk that is full at any moment: an error that names it, and once there is room the same result."""

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

import torchlift as tl
from train.run.faults import VERBS, left, story

PAGE = 4096


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Path]:
    """A small disk of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    if shutil.which("mount") is None or not mounted(place, 1 << 30):
        pytest.skip("this machine mounts no tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def mounted(place: Path, size: int, *how: str) -> bool:
    options = ",".join([*how, f"size={size}"])
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def used(place: Path) -> int:
    usage = shutil.disk_usage(place)
    return usage.used // PAGE


def lived(verb: Callable[..., None], out: Path, **how: bool) -> str:
    """What a life says at its end."""
    with contextlib.redirect_stdout(None):
        try:
            verb(out, **how)
        except (tl.TorchliftError, OSError) as error:
            return str(error)
    return ""


@pytest.mark.parametrize(("verb", "lives"), [("fit", 6), ("compare", 4), ("auto", 4), ("tune", 4)])
def test_a_full_disk_is_told_and_makes_no_difference(disk: Path, verb: str, lives: int) -> None:
    run = VERBS[verb]
    assert lived(run, disk / "whole") == ""
    expected, pages = story(verb, disk / "whole"), used(disk)
    shutil.rmtree(disk / "whole")
    full = 0
    for number in range(lives):
        out = disk / f"run{number}"
        room = used(disk) + 1 + number * pages // lives
        assert mounted(disk, room * PAGE, "remount")
        said = lived(run, out, resume=True)
        full += "No space left on device" in said
        assert "\n" not in said
        assert mounted(disk, 1 << 30, "remount")
        assert lived(run, out, resume=True) == ""
        assert story(verb, out) == expected
        assert not left(out)
        shutil.rmtree(out)
    assert full >= lives - 1, "all but perhaps the last"
