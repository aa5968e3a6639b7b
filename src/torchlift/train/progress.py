"""A live bar on a terminal, silence elsewhere."""

import sys
from typing import Any


class Progress:
    """Phase, epoch, losses, metric, time left of the fit at hand."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled and sys.stderr.isatty()
        self.bar: Any = None
        self.task: Any = None

    def start(self, name: str, total: int, done: int) -> None:
        """Begin a fit's bar."""
        if not self.enabled:
            return
        from rich import progress
        from rich.console import Console

        self.bar = progress.Progress(
            progress.TextColumn("[bold]{task.description}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[note]}"),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            refresh_per_second=4,
        )
        self.task = self.bar.add_task(name, total=total, completed=done, note="")
        self.bar.start()

    def update(self, done: int, note: str | None = None) -> None:
        """Steps done; the note changes once an epoch."""
        if self.bar is not None:
            self.bar.update(self.task, completed=done, **({} if note is None else {"note": note}))

    def stop(self) -> None:
        """End the bar, leaving its last line."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
