"""The law of one graph: turning dials must not make ``torch.compile`` compile again."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.core import Batch, Lift, Task, anneal
from torchlift.testing.steps import Steps

CompiledGraph = Callable[..., Any]


def compiles_once(lift: Lift, task: Task, batch: Batch) -> None:
    """Loss and penalty are one full graph, compiled once however the dials turn, equal to eager."""
    lifted = lift.lift(task, Steps(batch)).eval()
    graphs: list[nn.Module] = []

    def backend(graph: Any, inputs: list[Tensor]) -> CompiledGraph:
        del inputs
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    compiled = torch.compile(lifted, fullgraph=True, backend=backend)
    for t in (0.0, 0.3, 0.7, 1.0):
        anneal(lifted, t)
        difference = abs(compiled(batch).item() - lifted(batch).item())
        assert difference <= 1e-5, f"compiled and eager differ by {difference} at t = {t}"
    assert len(graphs) == 1, f"{len(graphs)} graphs were compiled, not one"
