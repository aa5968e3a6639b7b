"""The laws every lift obeys, ours or yours: run your own lift through them with :func:`check`."""

from torchlift.testing.compiled import compiles_once
from torchlift.testing.laws import LAWS, check, lands
from torchlift.testing.processes import agrees_across_processes
from torchlift.testing.steps import Steps, descend

__all__ = ["LAWS", "Steps", "agrees_across_processes", "check", "compiles_once", "descend", "lands"]
