"""DataLoader workers that die: torch raises in the main thread, wherever that is."""

import contextlib
import time
from collections.abc import Generator

from torchlift.errors import DataError


@contextlib.contextmanager
def watched() -> Generator[None]:
    """Turn the death of a worker into one line that names the fix."""
    try:
        yield
    except (RuntimeError, ConnectionError) as error:
        first = str(error).splitlines()[0]
        if isinstance(error, RuntimeError) and "DataLoader worker" not in first:
            raise
        with contextlib.suppress(RuntimeError):
            time.sleep(0.5)  # torch may tell of the same death a second time, by a signal
        raise DataError(
            f"a DataLoader worker died ({first}): set num_workers=0 to see its own error."
        ) from error
