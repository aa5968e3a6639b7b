"""The module of an entry, found as the command finds it."""

from types import ModuleType

from torchlift.cli.reproduction import find_entries, imported


def module_of(name: str) -> ModuleType:
    """``one_shot_pruning`` → papers.savarese_thesis.one_shot_pruning."""
    return imported(find_entries()[name.replace("_", "-")].file)
