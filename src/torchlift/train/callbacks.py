"""What a run tells others while it goes on: TensorBoard, Weights & Biases, a line of one's own."""

from collections.abc import Callable, Iterable
from typing import Any

from torchlift.errors import TorchliftError
from torchlift.train.history import HistoryRow

Listener = Callable[[HistoryRow], object]


class Callback:
    """Told every new row of the history, and the end. What it raises ends the run, which can be resumed.

    >>> class Wandb(Callback):
    ...     def __init__(self, run): self.run = run
    ...     def on_row(self, row): self.run.log(row, step=row["step"])
    ...     def on_end(self, result): self.run.finish()
    """

    def on_row(self, row: HistoryRow) -> None:
        """An epoch has ended; the row is that of ``history.jsonl``."""

    def on_end(self, result: Any) -> None:
        """The run is done; the result that ``fit`` returns."""


def listeners(callbacks: Iterable[Any]) -> list[Listener]:
    """What is told every row: functions of a row, and callbacks."""
    return [callback.on_row if isinstance(callback, Callback) else callback for callback in callbacks]


def check_callbacks(callbacks: Any) -> None:
    """Functions or callbacks, in a list or tuple."""
    if not isinstance(callbacks, list | tuple):
        raise TorchliftError(f"callbacks is a list of functions or Callback; got {callbacks!r:.60}.")
    for callback in callbacks:
        if not (isinstance(callback, Callback) or callable(callback)) or isinstance(callback, type):
            raise TorchliftError(f"a callback is a function of a row, or a Callback; got {callback!r:.60}.")
