"""A clock that goes by what is computed, not by how fast a machine is."""

import contextlib
import time
from collections.abc import Callable, Generator
from unittest import mock

from torch import nn
from torch.nn.modules.module import register_module_forward_hook


def own_parameters(module: nn.Module) -> int:
    """Those that no module inside it has."""
    return sum(parameter.numel() for parameter in module.parameters(recurse=False))


@contextlib.contextmanager
def by(seconds: Callable[[nn.Module], float]) -> Generator[None]:
    """The call of a module takes so many seconds; nothing else takes any."""
    now = 0.0

    def passes(module: nn.Module, *_: object) -> None:
        nonlocal now
        now += seconds(module)

    handle = register_module_forward_hook(passes)
    try:
        with mock.patch.multiple(time, perf_counter=lambda: now, process_time=lambda: now):
            yield
    finally:
        handle.remove()


def by_parameters(seconds: float = 1e-6) -> contextlib.AbstractContextManager[None]:
    """So many seconds for each parameter."""
    return by(lambda module: seconds * own_parameters(module))
