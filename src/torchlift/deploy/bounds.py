"""The least that a file must say: the entropy of a model's values.

    few distinct values:  n·H(values) + the values themselves
    zeros among many:     n·H(mask) + the entries that are not zero
    neither:              the entries

H(p) = −Σ p log2 p of the frequencies in the tensor; the least of the three counts. Weights that are not
quantised have signs and exponents that repeat, so that a file may come out below: the bound takes such
entries as they are.
"""

import math

import numpy as np
from torch import Tensor

from torchlift.deploy.elements import bits_of, distinct
from torchlift.deploy.palettes import MOST
from torchlift.deploy.rans import Array


def entropy_bits(counts: Array) -> float:
    """n·H in bits for symbols that occur so often."""
    seen = counts[counts > 0].astype(np.float64)
    return float(-(seen * np.log2(seen / seen.sum())).sum()) if seen.size else 0.0


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
    return math.ceil(min(forms))
