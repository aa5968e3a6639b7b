"""Every random stream of a run: saved with it, restored with it, and the user's own left alone."""

import contextlib
import hashlib
import random
from collections.abc import Generator
from typing import Any

import numpy as np
import torch


def capture() -> dict[str, Any]:
    """The state of torch's, numpy's and Python's global generators."""
    name, keys, *rest = np.random.get_state(legacy=True)
    version, internal, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "python": [version, list(internal), gauss],
    }


def restore(state: dict[str, Any]) -> None:
    """Set the generators to a captured state."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))


@contextlib.contextmanager
def scope(seed: int | None = None) -> Generator[None]:
    """A stretch of code with its own random streams; afterwards the old ones go on as if nothing had been."""
    before = capture()
    try:
        if seed is not None:
            seed_torch(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
        yield
    finally:
        restore(before)


def seed_torch(seed: int) -> None:
    """``torch.manual_seed``, which without an accelerator spends a millisecond on tracebacks."""
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def key(*values: object) -> int:
    """A seed that depends on every part: stable across processes, machines and Python versions."""
    digest = hashlib.blake2b(repr(values).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")
