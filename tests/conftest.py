import os

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("ci", derandomize=True)  # the same examples in every run of CI
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)
