import gc

import hypothesis
import pytest
import torch

import no_waiting  # noqa: F401
from nightly import NIGHTLY

hypothesis.settings.register_profile("test", deadline=None, derandomize=True, database=None, max_examples=40)
hypothesis.settings.register_profile("fuzz", deadline=None, max_examples=500, print_blob=True)
hypothesis.settings.load_profile("test")  # make fuzz: --hypothesis-profile=fuzz, fresh examples in every run


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid in NIGHTLY or item.nodeid.partition("[")[0] in NIGHTLY:
            item.add_marker("nightly")


def pytest_collection_finish() -> None:
    """Modules stay to the end: the collector need not look at them, nor so often at all else."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.default_generator.manual_seed(0)  # torch.manual_seed keeps a traceback for every kind of device
