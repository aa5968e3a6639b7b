"""Two processes, each with half the samples, do exactly what one process does with all (gloo)."""

import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import torchlift as tl
from forked import in_two_processes
from torchlift import lifted
from torchlift.methods.lifted import solvers
from torchlift.train import StepContext


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 3)).double()


def task() -> tuple[Tensor, Tensor]:
    x = torch.randn(41, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x, x[:, :3].argmax(1)


def fit(net: nn.Module, data: tuple[Tensor, Tensor], penalty: str, shard: lifted.Shard | None) -> list[float]:
    loss = "mse" if penalty == "classical" else "cross_entropy"
    y = nn.functional.one_hot(data[1], 3).double() if loss == "mse" else data[1]
    method = lifted.BCD(update=solvers.Exact(1e-11), rho=1e-2)
    result = lifted.train(
        net, (data[0], y), method=method, penalty=penalty, loss=loss, epochs=2, progress=False, shard=shard
    )
    return [row["objective"] for row in result.history]


def work(rank: int, port: int, penalty: str, folder: str) -> None:
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    x, y = task()
    mine = slice(0, 17) if rank == 0 else slice(17, None)  # shards need not be equal
    net = model()
    objective = fit(net, (x[mine], y[mine]), penalty, lifted.Sharded())
    torch.save((net.state_dict(), objective), Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


ORDERS = ("red_black", "descending", "jacobi")


def by_layers(rank: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    result = {order: layer_sweeps(order, rank, 2) for order in ORDERS}
    torch.save((result, stopped_and_resumed(rank, Path(folder))), Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def deep_problem(order: str) -> Any:
    """Five layers, to be partitioned."""
    torch.manual_seed(0)
    hidden = [module for _ in range(4) for module in (nn.Linear(5, 5), nn.Tanh())]
    net = nn.Sequential(*hidden, nn.Linear(5, 3)).double()
    method = lifted.BCD(order=order, update="linearized", parallel="layers")  # type: ignore[arg-type]
    problem = method.lift(tl.Task(net, "cross_entropy"))
    problem.prepare([])
    return problem


def sweep(problem: Any, rank: int, world: int, times: int) -> None:
    x, y = task()
    for _ in range(times):
        problem.advance((x, y, torch.arange(len(x))), StepContext(rank=rank, world=world))


def layer_sweeps(order: str, rank: int = 0, world: int = 1) -> dict[str, Any]:
    """What three sweeps leave."""
    problem = deep_problem(order)
    sweep(problem, rank, world, 3)
    own = [i for i, layer in enumerate(problem.network.layers) if len(layer.theta)]
    problem.eval()
    weights, energies = problem.author.project(problem).model.state_dict(), problem.row()
    return {"weights": weights, "energies": energies, "states": len(problem.kept), "layers": own}


def stopped_and_resumed(rank: int, folder: Path) -> dict[str, Tensor]:
    """Two sweeps by two processes, a checkpoint of the first one, one more sweep by two others."""
    problem = deep_problem("red_black")
    sweep(problem, rank, 2, 2)
    state = problem.state_dict()
    if rank == 0:
        torch.save(state, folder / "checkpoint.pt")
    dist.barrier()
    problem = deep_problem("red_black")
    problem.load_state_dict(torch.load(folder / "checkpoint.pt", weights_only=False))
    problem.start(StepContext(rank=rank, world=2))
    sweep(problem, rank, 2, 1)
    return problem.eval().task.model.state_dict()


@pytest.mark.slow
def test_layers_in_parallel_give_the_one_process_result(tmp_path: Path) -> None:
    """One process has two layers and the weights above, the other three; a resumed run is bit for bit."""
    in_two_processes(by_layers, free_port(), str(tmp_path))
    results, resumed = zip(*(torch.load(tmp_path / f"{rank}.pt") for rank in range(2)), strict=True)
    for order in ORDERS:
        alone = layer_sweeps(order)
        assert alone["states"] == 4
        assert [result[order]["layers"] for result in results] == [[0, 1, 2], [2, 3, 4]]
        for result in (result[order] for result in results):
            assert result["states"] == 2
            assert result["energies"] == pytest.approx(alone["energies"], rel=1e-7)
            for name, weight in result["weights"].items():
                assert (weight - alone["weights"][name]).abs().max() < 1e-6
    for weights in resumed:
        assert all(torch.equal(weights[name], results[0]["red_black"]["weights"][name]) for name in weights)


@pytest.mark.parametrize("order", ["red_black", "jacobi"])
def test_all_layers_in_one_process_give_the_result_of_all_samples(order: str) -> None:
    torch.manual_seed(0)
    hidden = [module for _ in range(4) for module in (nn.Linear(5, 5), nn.Tanh())]
    net = nn.Sequential(*hidden, nn.Linear(5, 3)).double()
    method = lifted.BCD(order=order, update="linearized")  # type: ignore[arg-type]
    lifted.train(net, task(), method=method, epochs=3, progress=False)
    weights = layer_sweeps(order)["weights"]
    for name, weight in net.state_dict().items():
        torch.testing.assert_close(weights[name], weight, rtol=0, atol=1e-6)


def test_layers_in_parallel_name_what_they_cannot_do() -> None:
    with pytest.raises(tl.TorchliftError, match="parallel='layers' goes without chunk, learn_slopes"):
        lifted.BCD(parallel="layers", chunk=10, learn_slopes=True)
    with pytest.raises(tl.TorchliftError, match="needs one batch"):
        tl.fit(model(), task(), recipe=lifted.BCD(parallel="layers"), batch_size=10, epochs=1, progress=False)


@pytest.mark.parametrize("penalty", ["bregman", "classical"])
@pytest.mark.slow
def test_two_processes_give_the_one_process_result(penalty: str, tmp_path: Path) -> None:
    in_two_processes(work, free_port(), penalty, str(tmp_path))
    net = model()
    objective = fit(net, task(), penalty, None)
    for rank in range(2):
        weights, actual = torch.load(tmp_path / f"{rank}.pt")
        for name, weight in net.state_dict().items():
            assert (weights[name] - weight).abs().max() < 1e-8
        assert actual == pytest.approx(objective, rel=1e-9)


def by_chunks(rank: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    x, y = task()
    mine = slice(0, 12) if rank == 0 else slice(12, None)  # two chunks and three
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)).double()
    history = lifted.train(
        net,
        (x[mine], y[mine]),
        method="bcd",
        update="accelerated",
        chunk=10,
        epochs=3,
        progress=False,
        shard=lifted.Sharded(),
    ).history
    torch.save((net.state_dict(), [row["loss"] for row in history]), Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_uneven_shards_in_chunks_from_different_seeds(tmp_path: Path) -> None:
    """The processes asked one another another number of times each, and were aborted."""
    in_two_processes(by_chunks, free_port(), str(tmp_path))
    (one, losses), (two, same) = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert losses == same
    assert losses[-1] < losses[0]
