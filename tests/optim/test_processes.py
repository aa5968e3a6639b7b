"""Two processes with half of the data each take the steps of one."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from forked import in_two_processes
from torchlift.optim import AvaGrad


def problem() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(16, 3, dtype=torch.float64)
    return nn.Linear(3, 2, dtype=torch.float64), x, x[:, :2] ** 2


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    optimizer = AvaGrad(model.parameters(), lr=0.3, weight_decay=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def worker(rank: int, file: str, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    model, x, y = problem()
    train(DistributedDataParallel(model), x[rank::2], y[rank::2])
    torch.save(model.state_dict(), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_do_what_one_does(tmp_path):
    in_two_processes(worker, str(tmp_path / "meeting"), str(tmp_path))
    model, x, y = problem()
    train(model, x, y)
    for rank in range(2):
        for name, value in torch.load(tmp_path / f"{rank}.pt").items():
            assert (value - model.state_dict()[name]).abs().max() < 1e-12
