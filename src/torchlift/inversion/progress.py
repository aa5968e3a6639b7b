"""A bar on a terminal, silence elsewhere."""

import contextlib
import sys
from collections.abc import Callable, Generator

Report = Callable[[int, float, float | None], None]


@contextlib.contextmanager
def bar(enabled: bool, total: int) -> Generator[Report | None]:
    """Hand out what a solver calls with (iteration, objective, gap)."""
    if not (enabled and sys.stderr.isatty()):
        yield None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("[bold]inverting"),
        progress.BarColumn(),
        progress.TextColumn("{task.completed} iterations · {task.fields[note]}"),
        progress.TimeElapsedColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), refresh_per_second=4) as shown:
        task = shown.add_task("", total=total, note="")

        def report(iteration: int, objective: float, gap: float | None) -> None:
            note = f"objective {objective:.6g}" + ("" if gap is None else f", gap {gap:.2g}")
            shown.update(task, completed=iteration, note=note)

        yield report
