"""A clock that goes by what is computed, not by how fast a machine is."""

import contextlib
import time
from collections.abc import Callable, Generator
from unittest import mock

from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook


def own_parameters(one: nn.Module | Optimizer) -> int:
    """Those that no module inside it has."""
    return sum(p.numel() for p in one.parameters(recurse=False)) if isinstance(one, nn.Module) else 0


@contextlib.contextmanager
def by(seconds: Callable[[nn.Module | Optimizer], float]) -> Generator[None]:
    """The call of a module, or the step of an optimizer, takes so many seconds; nothing else takes any."""
    now = 0.0

    def passes(one: nn.Module | Optimizer, *_: object) -> None:
        nonlocal now
        now += seconds(one)

    handles = register_module_forward_hook(passes), register_optimizer_step_post_hook(passes)
    try:
        with mock.patch.multiple(time, perf_counter=lambda: now, process_time=lambda: now):
            yield
    finally:
        for handle in handles:
            handle.remove()


def by_parameters(seconds: float = 1e-6) -> contextlib.AbstractContextManager[None]:
    """So many seconds for each parameter."""
    return by(lambda one: seconds * own_parameters(one))
