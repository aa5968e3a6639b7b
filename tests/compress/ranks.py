"""Compress on the processes of ``torchrun``, or alone, and write down what came out."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import torchlift as tl

out, alone = Path(sys.argv[1]), sys.argv[2] == "alone"
if not alone:
    dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv1d(2, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 6), nn.Tanh(), nn.Linear(6, 3)
)
x = torch.randn(32, 2, 8)
cut, grid = (tl.compress(model.eval(), x, progress=False, **kw) for kw in ({"ratio": 0.25}, {"bits": 3}))
if alone or dist.get_rank() == 0:
    torch.save([cut.model.state_dict(), grid.model.state_dict()], out.with_suffix(".pt"))
    out.write_text(json.dumps([cut.error, grid.error]))
if not alone:
    dist.destroy_process_group()
