import os

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("local", deadline=None)  # a busy machine is not a failure
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)  # the same examples in every run
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)
