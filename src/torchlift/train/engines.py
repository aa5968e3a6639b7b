"""Where the steps run: this process, or several through Lightning Fabric."""

import atexit
import contextlib
import os
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from torchlift.core import Problem
from torchlift.errors import TorchliftError

ObjectiveCall = Callable[..., Tensor]
LOST = ("gloo/transport", "Connection closed by peer", "Connection reset by peer", "NCCL error")
"""What torch says when a process it talks to is gone."""


class Engine:
    """One process, one device, full precision: nothing between the loop and torch."""

    rank, world = 0, 1

    def __init__(self, device: torch.device, compiled: bool = False) -> None:
        self.device, self.compiled = device, compiled

    def setup(self, problem: Problem, optimizer: Optimizer) -> tuple[ObjectiveCall, Optimizer]:
        """The objective and optimizer to step with; views for calling, never for saving."""
        return (torch.compile(problem) if self.compiled else problem), optimizer

    def backward(self, loss: Tensor) -> None:
        """Gradients."""
        loss.backward()

    def clip(self, problem: Problem, optimizer: Optimizer, norm: float) -> None:
        """Scale the gradients to at most this norm."""
        del optimizer
        nn.utils.clip_grad_norm_(problem.parameters(), norm)

    def total(self, values: Tensor) -> Tensor:
        """The sum over processes."""
        return values

    def mean(self, value: float) -> float:
        """The mean over processes."""
        return value

    def barrier(self) -> None:
        """Wait for the other processes."""


class FabricEngine(Engine):
    """Several processes, other devices, mixed precision."""

    def __init__(self, device: torch.device, world: int, precision: str, compiled: bool = False) -> None:
        super().__init__(device, compiled)
        fabric = import_fabric()
        strategy = "ddp" if world > 1 else "auto"
        try:
            self.fabric = fabric.Fabric(
                accelerator=device.type, devices=world, strategy=strategy, precision=precision
            )
        except ValueError as error:
            raise TorchliftError(
                f"precision is '32', or one of Fabric's, such as 'bf16-mixed'; got {precision!r}."
            ) from error
        self.fabric.launch()
        atexit.unregister(leave)  # once, however many engines there are
        atexit.register(leave)
        self.device, self.rank, self.world = (
            self.fabric.device,
            self.fabric.global_rank,
            self.fabric.world_size,
        )

    def setup(self, problem: Problem, optimizer: Optimizer) -> tuple[ObjectiveCall, Optimizer]:
        """DDP around the problem, penalties included."""
        module, wrapped = self.fabric.setup(problem, optimizer)
        return (torch.compile(module) if self.compiled else module), wrapped

    def backward(self, loss: Tensor) -> None:
        """Gradients, averaged over processes."""
        self.fabric.backward(loss)

    def clip(self, problem: Problem, optimizer: Optimizer, norm: float) -> None:
        """Scale the (unscaled) gradients to at most this norm."""
        self.fabric.clip_gradients(problem, optimizer, max_norm=norm)

    def total(self, values: Tensor) -> Tensor:
        """The sum over processes."""
        return self.fabric.all_reduce(values, reduce_op="sum")

    def mean(self, value: float) -> float:
        """The mean over processes."""
        return float(self.total(torch.tensor(value, dtype=torch.float64))) / self.world

    def barrier(self) -> None:
        """Wait for the other processes."""
        self.fabric.barrier()


def processes() -> int:
    """How many processes the run was started with (``torchrun`` says so)."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def first_process() -> bool:
    """Whether this is the one that writes, before there is an engine to ask."""
    return processes() == 1 or os.environ.get("RANK", "0") == "0"


def engine(device: str | torch.device = "auto", precision: str = "32", compiled: bool = False) -> Engine:
    """The engine for this process: our own where it is alone on a CPU at full precision."""
    world = processes()
    target = usable_device(best_device() if device == "auto" else device)
    if world == 1 and precision == "32":
        return Engine(target, compiled)
    return FabricEngine(target, world, precision, compiled)


def best_device() -> str:
    """A GPU of either kind where there is one."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def usable_device(device: str | torch.device) -> torch.device:
    """A device that torch knows and this machine has."""
    try:
        target = torch.device(device)
        torch.empty(0, device=target)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].split(". ")[0].rstrip(".")
        raise TorchliftError(
            f"device {str(device)!r} cannot be used ({reason}): pass device='cpu'."
        ) from error
    return target


@contextlib.contextmanager
def connected() -> Generator[None]:
    """Turn the loss of another process into one line that names the fix."""
    try:
        yield
    except RuntimeError as error:
        first = next(iter(str(error).splitlines()), "")
        if not (isinstance(error, distributed.DistError) or any(word in first for word in LOST)):
            raise
        raise TorchliftError(
            f"another process of this run is gone ({first[:120]}): see what it said, then start all of them "
            "again with resume=True."
        ) from error


def leave() -> None:
    """Take down the process group before the interpreter does: torch's threads would outlive their locks."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def import_fabric() -> Any:
    """Lightning Fabric, or a line that says how to get it."""
    try:
        import lightning_fabric
    except ImportError as error:
        need = "several processes and mixed precision need Lightning Fabric"
        raise TorchliftError(f"{need}: pip install 'torchlift[dist]'.") from error
    return lightning_fabric
