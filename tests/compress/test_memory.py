"""Memory of a call: at most three times the model, two batches and the largest Gram matrix."""

import json
import subprocess
import sys

SCRIPT = """
import json
import torch
from torch import nn
import torchlift as tl

torch.set_num_threads(1)

def encoder(width, depth):
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True)
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False).eval()

def memory(name):  # the kernel's own maximum of a process, ru_maxrss, starts at that of its parent
    return 1024 * int(next(l for l in open("/proc/self/status") if l.startswith(name)).split()[1])

tl.compress(encoder(16, 1), torch.randn(32, 4, 16), bits=4, progress=False)  # modules are loaded
before = memory("VmRSS")
model, x = encoder(256, 16), torch.randn(64, 16, 256)
tl.compress(model, x, bits=4, progress=False)
peak = memory("VmHWM") - before
print(json.dumps([peak, sum(p.nbytes for p in model.parameters())]))
"""

BATCH = 32 * 16 * 256 * 4 * 14
"""What one batch of 32 holds in a layer: input, queries, keys, values, heads, sums, four hidden twice."""
GRAM = 1024**2 * 4
ALLOCATOR = 24 * 2**20
"""Freed memory that the C library keeps, pieces of a file."""


def test_the_peak_is_three_models_two_batches_and_a_gram_matrix() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    peak, model = json.loads(done.stdout)
    assert model > 50e6
    assert peak < 3 * model + 2 * BATCH + GRAM + ALLOCATOR
