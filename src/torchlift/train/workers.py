"""DataLoader workers that die: torch raises in the main thread, wherever that is."""

import contextlib
from collections.abc import Generator

from torchlift.core import DataError


@contextlib.contextmanager
def watched() -> Generator[None]:
    """Turn the death of a worker into one line that names the fix."""
    try:
        yield
    except (RuntimeError, ConnectionError) as error:
        first = str(error).splitlines()[0]
        if isinstance(error, RuntimeError) and "DataLoader worker" not in first:
            raise
        raise DataError(
            f"a DataLoader worker died ({first}): set num_workers=0 to see its own error."
        ) from error
