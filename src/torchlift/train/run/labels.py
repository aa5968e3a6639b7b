"""Folder names for labels: readable, and different where the labels are."""

import hashlib
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from torchlift.errors import TorchliftError

LONGEST = 120
"""Characters of a name; file systems take 255 bytes with what we add."""


def folders_for(labels: Iterable[str], seeds: Sequence[int]) -> dict[tuple[str, int], str]:
    """A folder for every label and seed; no two share one, also where case does not count."""
    folders = {(label, seed): f"{folder_name(label)}-{seed}" for label in labels for seed in seeds}
    taken: dict[str, tuple[str, int]] = {}
    for key, name in folders.items():
        other = taken.setdefault(name.lower(), key)
        if other != key:
            raise TorchliftError(
                f"{other[0]!r} of seed {other[1]} and {key[0]!r} of seed {key[1]} would share the folder "
                f"{name!r}: rename one."
            )
    return folders


def folder_name(label: str) -> str:
    """The label, with what a file system may not take written as %XX; a long one ends in its digest."""
    name = quote(label, safe=" +,=()[]@")
    if len(name) <= LONGEST:
        return name
    return f"{name[:LONGEST]}~{hashlib.blake2b(label.encode(), digest_size=6).hexdigest()}"
