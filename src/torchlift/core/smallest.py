"""The smallest of many numbers, without sorting them."""

import numpy as np
import torch
from torch import Tensor

CHUNK = 2**20


def smallest_entries(entries: Tensor, count: int) -> Tensor:
    """Boolean, of the entries' shape: the ``count`` smallest; of equal ones the first.

    Partitions one copy of the entries, where sorting would take several in wider numbers.
    """
    flat = entries.detach().flatten().cpu()
    flat = flat if flat.dtype in (torch.float32, torch.float64) else flat.float()
    count = min(max(count, 0), flat.numel())
    if count == 0:
        return torch.zeros(entries.shape, dtype=torch.bool, device=entries.device)
    bound = float(np.partition(flat.numpy(), count - 1)[count - 1])
    gone = flat < bound
    missing = count - int(gone.count_nonzero())
    for chunk, into in zip(flat.split(CHUNK), gone.split(CHUNK), strict=True):
        equal = (chunk == bound).nonzero().flatten()[:missing]
        into[equal] = True
        missing -= len(equal)
    return gone.view(entries.shape).to(entries.device)
