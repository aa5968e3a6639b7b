import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("test", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("fuzz", deadline=None, max_examples=500, print_blob=True)
hypothesis.settings.load_profile("test")  # make fuzz: --hypothesis-profile=fuzz, fresh examples in every run


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)
