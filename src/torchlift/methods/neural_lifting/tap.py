"""Reading what a module of a model puts out, without hooks."""

from typing import Any

from torch import Tensor, nn

from torchlift.core import Node, Problem, Task
from torchlift.core.modules import module_aliases
from torchlift.core.outputs import pick_output
from torchlift.errors import TorchliftError
from torchlift.loss import output as prediction


class Tap(Node):
    """A module that remembers its output until it is read."""

    def __init__(self, inner: nn.Module, index: int | str | None, who: str) -> None:
        super().__init__()
        self.inner, self.index, self.who = inner, index, who
        self.seen: list[Tensor] = []

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's output, noted."""
        output = self.inner(*args, **kwargs)
        whole = self.index is None and not isinstance(output, Tensor)
        self.seen.append(prediction(output) if whole else pick_output(output, self.index, self.who))
        return output

    def drain(self) -> list[Tensor]:
        """What was noted since the last time: one tensor per call of the module."""
        seen, self.seen = self.seen, []
        return seen

    def project(self) -> nn.Module:
        """The module alone."""
        return self.inner


def tap(problem: Problem, name: str, index: int | str | None) -> Tap:
    """Put a tap around the named module of the problem's model."""
    body = problem.body()
    if body is None or (not name and not isinstance(problem, Task)):
        raise TorchliftError(
            f"Distil cannot look into a {type(problem).__name__}: project its weights first."
        )
    new = Tap(body.get_submodule(name), index, f"Distil at {name or 'the output'!r}")
    new.train(new.inner.training)
    if not name:
        problem.model = new
    else:
        for alias in module_aliases(body)[name]:
            body.set_submodule(alias, new)
    return new


def put(root: nn.Module, name: str, module: nn.Module) -> None:
    """Set a module under all of its names."""
    for alias in module_aliases(root)[name]:
        root.set_submodule(alias, module)


def drain(taps: list[Tap]) -> list[Tensor]:
    """All that taps have noted, in order."""
    return [tensor for tap in taps for tensor in tap.drain()]
