"""Weights by name, their zeros, and dropping more of them: what all pruning recipes share."""

import copy
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.channels.scores import Scope
from torchlift.core import Problem, Task, liftable, masks_of, matches, select, store
from torchlift.core.smallest import smallest_entries
from torchlift.core.weights import check_reach
from torchlift.errors import TorchliftError
from torchlift.methods.sparsity import gates
from torchlift.targets import Target


def prunable_weights(task: Task, where: str, skip: str | None = None) -> dict[str, nn.Parameter]:
    """The trainable matrices and kernels a glob picks, by their name in the problem."""
    check_reach(task, where, skip, "pruning")
    matrices = {n: p for n, p in liftable(task).items() if p.ndim > 1}
    names = select(matrices, where, "pruning")
    return {name: matrices[name] for name in names if not (skip and matches(name, skip))}


def why_not(task: Task, where: str, skip: str | None) -> str | None:
    """The reason why :func:`prunable_weights` raises, or None."""
    try:
        prunable_weights(task, where, skip)
    except TorchliftError as reason:
        return str(reason)
    return None


def sparsity(tensors: Mapping[str, Tensor]) -> float:
    """The fraction of exact zeros."""
    total = sum(w.numel() for w in tensors.values())
    return sum(int((w == 0).sum()) for w in tensors.values()) / total


def dropped(task: Task, scores: Mapping[str, Tensor], goal: float, scope: Scope = "global") -> Task:
    """A copy of the task in which the fraction ``goal`` of the scored weights is zero, least scores first.

    What is zero already stays so and counts; no weight is emptied; later fits keep the zeros. ``scope``: all
    layers compete, or each gives the same fraction.
    """
    if not 0 <= goal < 1:
        raise TorchliftError(f"sparsity must lie in [0, 1), got {goal}: 0.95 leaves 5 % of the weights.")
    task, scores = copy.deepcopy(task), dict(scores)
    with torch.no_grad():
        for names in [list(scores)] if scope == "global" else [[name] for name in scores]:
            tensors = [task.get_parameter(name) for name in names]
            counts = [w.numel() for w in tensors]
            flat = scores[names[0]].new_empty(sum(counts))  # in place of the scores: models may be large
            for name, w, own in zip(names, tensors, flat.split(counts), strict=True):
                own.copy_(scores.pop(name).flatten()).masked_fill_((w == 0).flatten(), -torch.inf)
            gone = smallest_entries(flat, int(goal * flat.numel() + 0.5))
            for name, w, cut in zip(names, tensors, gone.split(counts), strict=True):
                if bool(cut.all()):
                    warnings.warn(f"all of {name} would go; its largest weight is kept.", stacklevel=2)
                store(task, name, kept=(w != 0) & ~gates.spare_best(cut.view_as(w), w.abs()))
    return task


def magnitudes(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """|w|."""
    return {name: w.detach().abs() for name, w in tensors.items()}


def logger(where: str, skip: str | None, **target: float | None) -> Callable[[Problem], dict[str, float]]:
    """For the history: zeros among the chosen weights, zeros in the whole model, and the target."""
    goal = Target.one_of(**target)
    fixed = {} if goal is None else goal.row()

    def numbers(problem: Problem) -> dict[str, float]:
        assert isinstance(problem, Task)
        whole = sparsity(dict(problem.model.named_parameters()))
        return {
            "sparsity": sparsity(prunable_weights(problem, where, skip)),
            "model_sparsity": whole,
            **fixed,
        }

    return numbers


def rewound(task: Task, early: Mapping[str, Any]) -> Task:
    """A copy of the task with early weights and norm statistics, and its own zeros."""
    task = copy.deepcopy(task)
    task.load_state_dict(dict(early))
    for name, kept in masks_of(task).items():
        store(task, name, kept=kept)
    return task
