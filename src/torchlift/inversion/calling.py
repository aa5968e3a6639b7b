"""tl.invert: run a network backward."""

import dataclasses
import itertools
import math
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.convex.activations import Linear
from torchlift.convex.descent import Descent, Stopping
from torchlift.convex.functions import Box, Function, Zero, as_function, reweighted
from torchlift.flow.graph import Call, Graph
from torchlift.inversion import checks, choosing, rival
from torchlift.inversion.deep import Blocks
from torchlift.inversion.problems import (
    ChainInversion,
    GraphInversion,
    InversionProblem,
    ResidualInversion,
    Rival,
)
from torchlift.inversion.progress import bar
from torchlift.inversion.reading import (
    activation_of,
    affine_graph,
    check_same_function,
    first_break,
    forward_states,
    read_stages,
)
from torchlift.inversion.residual import MonotoneResidual
from torchlift.inversion.result import Inversion, InversionError

METHODS = ("auto", "fista", "pdhg", "bcd", "convex", *rival.METHODS)
_LIMITS = {"bcd": 1000, "bcd+lbfgs": 1000, "forward+lbfgs": 1000, "adam": 1000, "lbfgs": 300}


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
    mu: float | None = None,
    lam: float | None = None,
    blocks: Blocks | None = None,
    lr: float | None = None,
    progress: bool = True,
) -> Inversion:
    """x in argmin B(y, N(x)) + αJ(x): the input that explains the output y, kept stable by αJ.

    B is the Bregman penalty of the last activation, summed over entries and samples. One layer is a convex
    problem, solved until the primal–dual gap is below ``tol`` times the objective; several layers go block by
    block and end with L-BFGS; networks with skips over activations or max-pooling go by L-BFGS alone; a chain
    of ``MonotoneResidual`` is jointly convex and needs no ``reg``.

    model: linear layers, convolutions (transposed too), pooling, batch norm and dropout in evaluation mode,
        reshapes, sums, concatenations and the activations of ``tl.lifted``, as modules or functions.
    y: outputs, samples as rows. Values outside the last activation's range are projected, with a warning.
    reg: ``tl.convex.TV(alpha)``, ``L1``, ``L2``, ``Wavelets``, any object with ``fn`` and ``prox``, or a sum
        of them, as in ``TV(0.01) + L2(1e-3)``.
    shape: that of one input; a Linear's is known.
    noise: δ with B(y, N(truth)) ≈ δ² per sample; α is then the largest with mean fidelity ≤ δ².
    method: "auto", "fista", "pdhg" (one layer), "bcd" (several), "convex" (residual), or a rival on
        ½‖N(x) − y‖² + αJ(x) through autograd: "adam", "lbfgs".
    init: where to start. box: (lo, hi) for every entry of x.
    alpha: a number instead of ``reg``'s own, or "l-curve", which is an error where the curve has no corner.
    max_iter, seconds: limits; ``converged`` tells whether they were what stopped it.
    mu, blocks: of chains of several layers: weight of their penalties (1), and how sweeps go. lr: of the
        rivals.
    lam: weight λ of ½‖u_L − y‖² for residual networks (1); from 1 on the problem is convex.
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
        ("lam", lam),
    ):
        checks.check_positive(name, value)
    begun = time.perf_counter()
    with torch.no_grad():
        sweeps = blocks or Blocks()
        sweeps = sweeps if mu is None else dataclasses.replace(sweeps, mu=mu)
        problem, start = pose(model, y, method, shape, init, box, sweeps, 1.0 if lam is None else lam, lr)
        checks.check_used(problem.options, mu=mu, blocks=blocks, lam=lam, lr=lr)
        function = regularizer(reg, alpha, problem)
        limit = max_iter or _LIMITS.get(problem.method(function), 10_000)
        with bar(progress, limit) as report:
            stopping = Stopping(tol, limit, 10, seconds, report)
            weighted = with_chosen_weight(problem, function, y, noise, alpha, start, stopping)
            solution = problem.solve(weighted, start, stopping)
        return inversion_of(problem, weighted, solution, y, begun)


def inversion_of(
    problem: InversionProblem, reg: Function, solution: Descent, y: Tensor, begun: float
) -> Inversion:
    """What the solver found, in numbers."""
    output = problem.output(solution.x)
    return Inversion(
        x=solution.x,
        objective=float(solution.objective.sum()),
        fidelity=float(problem.fidelity(solution.x).sum()),
        residual=float((output - y).norm()),
        iterations=solution.iterations,
        alpha=None if isinstance(reg, Zero) else float(getattr(reg, "alpha", 1.0)),
        gap=None if solution.gap is None else float(solution.gap.sum()),
        converged=solution.converged,
        method=problem.method(reg),
        seconds=time.perf_counter() - begun,
        history=solution.history,
        y=y,
        output=output,
    )


def pose(
    model: nn.Module,
    y: Tensor,
    method: str,
    shape: tuple[int, ...] | None,
    init: Tensor | None,
    box: Any,
    blocks: Blocks,
    lam: float,
    lr: float | None,
) -> tuple[InversionProblem, Tensor | None]:
    """The kind of problem this model and method make, and the start."""
    limits = checks.as_box(box)
    graph = None if method in rival.METHODS else affine_graph(model)
    modules = [step.module for step in graph.steps] if graph is not None else []
    if modules and all(isinstance(module, MonotoneResidual) for module in modules):
        return residual_problem(modules, y, method, shape, init, limits, lam)
    first = modules[0] if modules else next(itertools.chain(_first(model), [model]))
    size = checks.input_shape(model, shape, init, first)
    flat = isinstance(first, nn.Linear) and len(size) > 1
    network = (lambda x: model(x.flatten(1))) if flat else model
    if graph is None:
        checks.check_output(y, attempt(network, y, size))
        return Rival(network, y, limits, size, method, lr), checks.check_start(init, y, size)
    problem = chain_or_network(graph, model, y, method, size, limits, blocks, flat)
    return problem, checks.check_start(init, y, size)


def residual_problem(
    modules: Sequence[nn.Module],
    y: Tensor,
    method: str,
    shape: tuple[int, ...] | None,
    init: Tensor | None,
    box: Box | None,
    lam: float,
) -> tuple[InversionProblem, Tensor | None]:
    """The jointly convex problem of a chain of monotone residual layers."""
    layers = [module for module in modules if isinstance(module, MonotoneResidual)]
    if method not in ("auto", "convex"):
        raise InversionError(f"tl.invert: residual networks are inverted by method='convex', not {method!r}")
    if lam < 1:
        raise InversionError(f"tl.invert: a residual network's problem is convex from lam=1 on, got {lam}")
    width = layers[0].weight.shape[1]
    size = shape or (width,)
    if y.ndim != 2 or y.shape[1] != layers[-1].weight.shape[1] or math.prod(size) != y.shape[1]:
        raise InversionError(
            f"tl.invert: a residual network of width {width} cannot give samples of {tuple(y.shape[1:])} "
            f"from inputs of {size}"
        )
    return ResidualInversion(layers, y, box, size, lam), checks.check_start(init, y, size)


def chain_or_network(
    graph: Graph,
    model: nn.Module,
    y: Tensor,
    method: str,
    size: tuple[int, ...],
    box: Box | None,
    blocks: Blocks,
    flat: bool,
) -> InversionProblem:
    """A chain of convex stages where the graph is one, else the network as a whole."""
    obstacle = first_break(graph)
    if obstacle is None:
        stages = read_stages(graph, size, y)
        checks.check_output(y, forward_states(stages, y.new_zeros(1, *size))[-1])
        check_same_function(model, lambda x: forward_states(stages, x)[-1], size, y, flat)
        if method == "convex" or (method != "auto" and (len(stages) > 1) != (method == "bcd")):
            raise InversionError(
                f"tl.invert: method={method!r} does not go with {len(stages)} layer(s); use method='auto'"
            )
        return ChainInversion(stages, checks.in_range(y, stages[-1].activation), box, method, blocks)
    if method != "auto":
        kind = "" if isinstance(obstacle.module, Call) else f" ({type(obstacle.module).__name__})"
        raise InversionError(
            f"tl.invert: method={method!r} needs a chain of layers, but {type(model).__name__} does "
            f"{obstacle.name!r}{kind} across them; use 'auto', 'adam' or 'lbfgs'"
        )
    last = activation_of(graph.steps[-1])
    bare = {len(graph.steps) - 1: nn.Identity()} if last is not None else None

    def before(x: Tensor) -> Tensor:
        return graph(x.flatten(1) if flat else x, bare)

    activation = last or Linear()
    checks.check_output(y, attempt(before, y, size))
    check_same_function(model, lambda x: activation(before(x)), size, y, flat)
    return GraphInversion(before, activation, checks.in_range(y, activation), box, size)


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


def regularizer(reg: Any, alpha: float | str | None, problem: InversionProblem) -> Function:
    """The function to add, with the user's α if that is a number."""
    if reg is None:
        if not isinstance(problem, ResidualInversion):
            raise InversionError(
                "tl.invert: reg is needed, as in reg=tl.convex.TV(0.01); only residual networks do without"
            )
        return Zero()
    function = as_function(reg)
    if isinstance(alpha, int | float):
        checks.check_positive("alpha", alpha)
        return reweighted(function, float(alpha))
    if alpha not in (None, "l-curve"):
        raise InversionError(f"tl.invert: alpha must be a positive number or 'l-curve', got {alpha!r}")
    return function


def with_chosen_weight(
    problem: InversionProblem,
    reg: Function,
    y: Tensor,
    noise: float | None,
    alpha: float | str | None,
    start: Tensor | None,
    stopping: Stopping,
) -> Function:
    """αJ with α as given, from the noise, or from the L-curve."""
    if noise is None and alpha != "l-curve":
        return reg
    if isinstance(reg, Zero):
        raise InversionError("tl.invert: noise and alpha='l-curve' choose the weight of reg, but reg is None")
    if noise is not None and alpha is not None:
        raise InversionError("tl.invert: alpha is chosen by noise; give one of the two")

    rough = dataclasses.replace(stopping, tol=max(stopping.tol, 1e-4), max_iter=min(stopping.max_iter, 2000))

    def solver(weighted: Function, warm: Tensor | None) -> choosing.Point:
        solution = problem.solve(weighted, start if warm is None else warm, rough)
        weight = float(getattr(weighted, "alpha", 1.0))
        size = float(weighted.fn(solution.x).sum()) / weight
        return choosing.Point(weight, solution.x, float(problem.fidelity(solution.x).sum()), size)

    first = float(getattr(reg, "alpha", 1.0))
    if noise is not None:
        return reweighted(reg, choosing.discrepancy(solver, reg, len(y) * noise**2, first))
    return reweighted(reg, choosing.corner(solver, reg, first))
