"""tl.invert: run a network backward."""

import dataclasses
import itertools
import math
import time
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.convex.descent import Descent, Watch
from torchlift.convex.functions import Function, Zero, as_function, reweighted
from torchlift.inversion import checks, choosing, rival
from torchlift.inversion.deep import Blocks
from torchlift.inversion.problems import Chain, Problem, Residual, Rival
from torchlift.inversion.progress import bar
from torchlift.inversion.reading import agree, leaves, read, run
from torchlift.inversion.residual import MonotoneResidual
from torchlift.inversion.result import Inversion, InversionError

METHODS = ("auto", "fista", "pdhg", "bcd", "convex", *rival.METHODS)
_LIMITS = {"bcd": 1000, "bcd+lbfgs": 200, "adam": 1000, "lbfgs": 300}


def invert(
    model: nn.Module,
    y: Tensor,
    *,
    reg: Any = None,
    shape: tuple[int, ...] | None = None,
    noise: float | None = None,
    method: str = "auto",
    init: Tensor | None = None,
    box: Any = None,
    alpha: float | str | None = None,
    tol: float = 1e-6,
    max_iter: int | None = None,
    seconds: float | None = None,
    mu: float = 1.0,
    blocks: Blocks | None = None,
    lr: float | None = None,
    progress: bool = True,
) -> Inversion:
    """x in argmin B(y, N(x)) + αJ(x): the input that explains the output y, kept stable by αJ.

    B is the Bregman penalty of the last activation, summed over entries and samples. One layer is a convex
    problem, solved until the primal–dual gap is below ``tol`` times the objective; several layers go block by
    block; a chain of ``MonotoneResidual`` is jointly convex and needs no ``reg``.

    model: a chain of Linear, Conv2d, average pooling, Flatten, batch norm (eval) and activations.
    y: outputs, samples as rows. Values outside the last activation's range are projected, with a warning.
    reg: ``tl.convex.TV(alpha)``, ``L1``, ``L2``, ``Wavelets``, or any object with ``fn`` and ``prox``.
    shape: that of one input; a Linear's is known.
    noise: δ with B(y, N(truth)) ≈ δ² per sample; α is then the largest with mean fidelity ≤ δ².
    method: "auto", "fista", "pdhg" (one layer), "bcd" (several), "convex" (residual), or a rival on
        ½‖N(x) − y‖² + αJ(x) through autograd: "adam", "lbfgs".
    init: where to start. box: (lo, hi) for every entry of x.
    alpha: a number instead of ``reg``'s own, or "l-curve".
    max_iter, seconds: limits; ``converged`` tells whether they were what stopped it.
    mu, blocks: weight of the layers' penalties, and how sweeps go. lr: of the rivals.
    """
    y = checks.observation(model, y)
    if method not in METHODS:
        raise InversionError(f"tl.invert: no method {method!r}; known: {', '.join(METHODS)}")
    for name, value in (
        ("noise", noise),
        ("tol", tol),
        ("max_iter", max_iter),
        ("seconds", seconds),
        ("mu", mu),
    ):
        checks.positive(name, value)
    begun = time.perf_counter()
    with torch.no_grad():
        problem, start = pose(model, y, method, shape, init, box, blocks or Blocks(mu=mu), lr)
        function = regularizer(reg, alpha, problem)
        limit = max_iter or _LIMITS.get(problem.method(function), 10_000)
        with bar(progress, limit) as report:
            watch = Watch(tol, limit, 10, seconds, report)
            weighted = weigh(problem, function, y, noise, alpha, start, watch)
            found = problem.solve(weighted, start, watch)
        return told(problem, weighted, found, y, begun)


def told(problem: Problem, reg: Function, found: Descent, y: Tensor, begun: float) -> Inversion:
    """What the solver found, in numbers."""
    return Inversion(
        x=found.x,
        objective=float(found.objective.sum()),
        fidelity=float(problem.fidelity(found.x).sum()),
        residual=float((problem.output(found.x) - y).norm()),
        iterations=found.iterations,
        alpha=None if isinstance(reg, Zero) else float(getattr(reg, "alpha", 1.0)),
        gap=None if found.gap is None else float(found.gap.sum()),
        converged=found.converged,
        method=problem.method(reg),
        seconds=time.perf_counter() - begun,
        history=found.history,
    )


def pose(
    model: nn.Module,
    y: Tensor,
    method: str,
    shape: tuple[int, ...] | None,
    init: Tensor | None,
    box: Any,
    blocks: Blocks,
    lr: float | None,
) -> tuple[Problem, Tensor | None]:
    """The kind of problem this model and method make, and the start."""
    limits = checks.as_box(box)
    parts = [] if method in rival.METHODS else [module for _, module in leaves(model)]
    first = parts[0] if parts else next(itertools.chain(_first(model), [model]))
    if parts and all(isinstance(part, MonotoneResidual) for part in parts):
        residual = [part for part in parts if isinstance(part, MonotoneResidual)]
        if method not in ("auto", "convex"):
            raise InversionError(
                f"tl.invert: residual networks are inverted by method='convex', not {method!r}"
            )
        size = shape or (residual[0].weight.shape[1],)
        if y.ndim != 2 or y.shape[1] != residual[-1].weight.shape[1] or math.prod(size) != y.shape[1]:
            raise InversionError(
                f"tl.invert: a residual network of width {residual[0].weight.shape[1]} cannot give samples "
                f"of {tuple(y.shape[1:])} from inputs of {size}"
            )
        return Residual(residual, y, limits, size, 1.0), checks.start(init, y, size)
    size = checks.shape_of(model, shape, init, first)
    flat = isinstance(first, nn.Linear) and len(size) > 1
    network = (lambda x: model(x.flatten(1))) if flat else model
    if method in rival.METHODS:
        checks.fits(y, attempt(network, y, size))
        return Rival(network, y, limits, size, method, lr), checks.start(init, y, size)
    stages = read(model, size, y)
    checks.fits(y, run(stages, y.new_zeros(1, *size))[-1])
    agree(model, stages, size, y, flat)
    several = len(stages) > 1
    if method == "convex" or (method != "auto" and several != (method == "bcd")):
        raise InversionError(
            f"tl.invert: method={method!r} does not go with {len(stages)} layer(s); use method='auto'"
        )
    y = checks.in_range(y, stages[-1].activation)
    return Chain(stages, y, limits, method, blocks), checks.start(init, y, size)


def _first(model: nn.Module) -> list[nn.Module]:
    """The first module without children."""
    return [module for module in model.modules() if next(module.children(), None) is None][:1]


def attempt(network: Any, y: Tensor, size: tuple[int, ...]) -> Tensor:
    """N(0), or one line about why there is none."""
    try:
        return network(y.new_zeros(1, *size))
    except (RuntimeError, ValueError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise InversionError(f"tl.invert: the model does not take samples of {size}: {reason}") from None


def regularizer(reg: Any, alpha: float | str | None, problem: Problem) -> Function:
    """The function to add, with the user's α if that is a number."""
    if reg is None:
        if not isinstance(problem, Residual):
            raise InversionError(
                "tl.invert: reg is needed, as in reg=tl.convex.TV(0.01); only residual networks do without"
            )
        return Zero()
    function = as_function(reg)
    if isinstance(alpha, int | float):
        checks.positive("alpha", alpha)
        return reweighted(function, float(alpha))
    if alpha not in (None, "l-curve"):
        raise InversionError(f"tl.invert: alpha must be a positive number or 'l-curve', got {alpha!r}")
    return function


def weigh(
    problem: Problem,
    reg: Function,
    y: Tensor,
    noise: float | None,
    alpha: float | str | None,
    start: Tensor | None,
    watch: Watch,
) -> Function:
    """αJ with α as given, from the noise, or from the L-curve."""
    if noise is None and alpha != "l-curve":
        return reg
    if isinstance(reg, Zero):
        raise InversionError("tl.invert: noise and alpha='l-curve' choose the weight of reg, but reg is None")
    if noise is not None and alpha is not None:
        raise InversionError("tl.invert: alpha is chosen by noise; give one of the two")

    rough = dataclasses.replace(watch, tol=max(watch.tol, 1e-4), max_iter=min(watch.max_iter, 2000))

    def solver(weighted: Function, warm: Tensor | None) -> choosing.Point:
        found = problem.solve(weighted, start if warm is None else warm, rough)
        weight = float(getattr(weighted, "alpha", 1.0))
        size = float(weighted.fn(found.x).sum()) / weight
        return choosing.Point(weight, found.x, float(problem.fidelity(found.x).sum()), size)

    first = float(getattr(reg, "alpha", 1.0))
    if noise is not None:
        return reweighted(reg, choosing.discrepancy(solver, reg, len(y) * noise**2, first))
    return reweighted(reg, choosing.corner(solver, reg, first))
