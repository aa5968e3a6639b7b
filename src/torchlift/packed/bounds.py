"""The least that a file must say: the entropy of a model's values.

    few distinct values:  n·H(values) + the values themselves
    zeros among many:     n·H(mask) + the entries that are not zero
    rows on own grids:    n·H(k) + a step per row, where w[r, …] = round(k[r, …]·step_r) with whole numbers k
    neither:              the entries

H(p) = −Σ p log2 p of the frequencies in the tensor; the least of the four counts. Steps are taken as they
are, k by its entropy over all rows: which whole numbers there are takes a few bits each. Weights that are not
quantized have signs and exponents that repeat, so that a file may come out below: the bound takes such
entries as they are.
"""

import math

import numpy as np
from torch import Tensor

from torchlift.packed import rowgrids
from torchlift.packed.elements import bits_of, distinct
from torchlift.packed.frequencies import entropy_bits
from torchlift.packed.palettes import MOST


def bound(tensor: Tensor) -> int:
    """Bytes of a tensor by its entropy."""
    bits = bits_of(tensor)
    if not bits.size:
        return 0
    width = bits.itemsize
    zeros = int(np.count_nonzero(bits == 0))
    forms = [
        float(bits.size * width),
        entropy_bits(np.array([zeros, bits.size - zeros])) / 8 + (bits.size - zeros) * width,
    ]
    if distinct(bits, MOST) is not None:
        counts = np.unique(bits, return_counts=True)[1]
        forms.append(entropy_bits(counts) / 8 + counts.size * width)
    grids = rowgrids.split(bits, tensor.dtype, len(tensor)) if tensor.ndim > 1 else None
    if grids is not None:
        counts = np.bincount(grids[1].reshape(-1).view("<u2"))
        forms.append(entropy_bits(counts) / 8 + grids[0].size * width)
    return math.ceil(min(forms))
