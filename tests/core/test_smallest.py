"""The smallest entries against a stable sort."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchlift.core import smallest
from torchlift.core.smallest import smallest_entries


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(0, 40))
def test_of_equal_entries_the_first_are_taken(numbers, count):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smallest, "CHUNK", 4)
        entries = torch.tensor(numbers, dtype=torch.float32)
        expected = torch.zeros(len(numbers), dtype=torch.bool)
        expected[torch.argsort(entries, stable=True)[:count]] = True
        assert torch.equal(smallest_entries(entries, count), expected)
