"""Lifting in function space: a module e after a named one, near the identity at first."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase  # pyright: ignore[reportPrivateUsage]
from torch.nn.modules.conv import _ConvNd  # pyright: ignore[reportPrivateUsage]

from torchlift.core import Batch, Fit, ModuleLift, Node, Problem, masks_of, merge, needs_fit, nodes
from torchlift.core.outputs import OutputShape, output_shape, pick_output, replace
from torchlift.errors import SelectionError, TorchliftError
from torchlift.methods.neural_lifting import residual
from torchlift.methods.neural_lifting.distil import Distil, Match, check_match
from torchlift.methods.neural_lifting.tap import tap

LifterKind = Literal["mlp", "conv", "block", "linear", "fading"]
Factory = Callable[[int], nn.Module]
KINDS = ("mlp", "conv", "block", "linear", "fading")
MERGING = ("linear", "fading")
SIGNED = (nn.Linear, _ConvNd, _NormBase, nn.LayerNorm, nn.RNNBase, nn.Embedding, nn.Tanh, nn.GELU, nn.SiLU)
BYPASSING = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
"""Modules that read their children's weights without calling them: a lifter inside would be skipped."""


class LiftedModule(Node):
    """x ↦ e(inner(x)); of a structured output only the chosen element is lifted."""

    options: Mapping[str, Mapping[str, Any]] = {"lifter": {}}

    def __init__(self, inner: nn.Module, lifter: nn.Module, index: int | str | None, who: str) -> None:
        super().__init__()
        self.inner, self.lifter = inner, lifter
        self.index, self.who = index, who
        self.seen_input = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's output, lifted."""
        output = self.inner(*args, **kwargs)
        z = pick_output(output, self.index, self.who)
        if not torch.compiler.is_compiling() and not self.seen_input:
            self.check(z)
        return replace(output, self.index, self.lifter(z))

    def check(self, z: Tensor) -> None:
        """Once, on the first input: the width is the one assumed, and a block can be the identity."""
        if isinstance(self.lifter, residual.Residual):
            self.lifter.check(z, self.who)
        self.seen_input = True

    def project(self) -> nn.Module:
        """The module alone, or with a lifter that is linear by now merged into it."""
        if isinstance(self.lifter, residual.Residual) and self.lifter.straight:
            return merge.merge(self.inner, *self.lifter.affine())
        return self.inner


@dataclasses.dataclass(frozen=True)
class Lifter(ModuleLift):
    """head ∘ trunk ─lift→ head ∘ e ∘ trunk ─project→ distil e ∘ trunk into trunk (Neural lifting, section 3).

    ``where`` names the trunk, or any module; of nested matches the outermost is lifted. ``kind``:

    - ``"mlp"``  z + W₂ relu(W₁ z + b₁) + b₂, pointwise on maps and sequences (``width`` 4 × features);
    - ``"conv"``  the same with 3×3 convolutions (``width`` 2 × channels; appendix C);
    - ``"block"``  relu of it: the identity where z ≥ 0, so an error elsewhere unless ``activation="none"``;
    - ``"linear"``  z + B A z + b, merged exactly into the layer before it: its projection does not learn;
    - ``"fading"``  an MLP whose ReLU turns into the identity during the fit, then merged like a linear one:
      exact at the end of a fit, with the gap that ``preview`` shows before it;
    - a factory ``features -> nn.Module``, or a module, that stands for e itself.

    With ``init="zeros"`` exactly the identity at first; ``"xavier"`` and ``"kaiming"`` are masked
    (``sparsity``) and multiplied by ``scale``. ``match``, ``mix`` and ``freeze_head`` are those of
    :class:`~torchlift.methods.neural_lifting.distil.Distil`.

    More than eight fields: the lifter's shape, its start and its way back are the paper's three choices.
    """

    where: str
    kind: LifterKind | Factory | nn.Module = "mlp"
    width: int | None = None
    init: residual.LifterInit = "zeros"
    sparsity: float = 0.0
    scale: float = 1.0
    match: Match = "mse"
    mix: float | tuple[float, float] = 0.2
    freeze_head: bool = False
    features: int | None = None
    index: int | str | None = None
    activation: Literal["relu", "none"] = "relu"

    def __post_init__(self) -> None:
        if isinstance(self.kind, str) and self.kind not in KINDS:
            raise TorchliftError(
                f"Lifter's kind {self.kind!r} is not known: {', '.join(KINDS)}, or a factory."
            )
        if not 0 <= self.sparsity < 1:
            raise TorchliftError(f"Lifter's sparsity must lie in [0, 1), got {self.sparsity}.")
        check_match(self.match, self.mix)

    @property
    def preserving(self) -> bool:
        """Exactly so with ``init="zeros"``."""
        return self.init == "zeros" and isinstance(self.kind, str)

    @property
    def learns(self) -> bool:
        """All kinds distil but ``"linear"`` and ``"fading"``, which merge."""
        return self.kind not in MERGING

    def lift(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """A copy of the problem with the lifter in place."""
        lifted = super().lift(problem, fit)
        body = self.body(lifted)
        pruned = set(masks_of(body))
        for name in self.lifted_modules(lifted):
            self.check_call(body, name)
            if not self.learns:
                inner = body.get_submodule(f"{name}.inner")
                merge.check_tied(body, inner, self.who(name))
                merge.check_frozen(inner, self.who(name))
                if any(weight.startswith(f"{name}.") for weight in pruned):
                    raise SelectionError(f"{self.who(name)}: merging would fill its pruned weight.")
        return lifted

    def check_call(self, body: nn.Module, name: str) -> None:
        """An error if a module above the lifter reads weights past it."""
        path = name.split(".")
        above = (body.get_submodule(".".join(path[:depth])) for depth in range(len(path)))
        culprit = next((type(module).__name__ for module in above if isinstance(module, BYPASSING)), None)
        if culprit:
            raise SelectionError(
                f"{self.who(name)}: {culprit} never calls its parts; lift the {culprit} itself."
            )

    def lifted_modules(self, problem: Problem) -> list[str]:
        """The names of the modules that are lifted."""
        return [name for name, node in nodes(self.body(problem)) if node.way_back == self]

    def nodes(self, modules: Mapping[str, nn.Module]) -> Mapping[str, Node]:
        """A node around the outermost matches; layers without a shape are left out if others have one."""
        outer = {n: m for n, m in modules.items() if not any(n.startswith(f"{other}.") for other in modules)}
        shapes = {name: self.shape(module) for name, module in outer.items()}
        if not any(shapes.values()):
            name, module = next(iter(outer.items()))
            raise TorchliftError(
                f"{self.who(name)}: the width of a {type(module).__name__} is not known; pass features=."
            )
        return {name: self.node(name, outer[name], shape) for name, shape in shapes.items() if shape}

    def shape(self, module: nn.Module) -> OutputShape | None:
        """The output's shape: inferred, or as given by ``features``."""
        inferred = output_shape(module)
        if self.features is None:
            return inferred
        return (
            dataclasses.replace(inferred, features=self.features)
            if inferred
            else OutputShape(self.features, "unknown")
        )

    def node(self, name: str, module: nn.Module, shape: OutputShape) -> LiftedModule:
        """The lifter behind one module."""
        who = self.who(name)
        if isinstance(self.kind, nn.Module):
            lifter = copy.deepcopy(self.kind)
        elif callable(self.kind):
            lifter = self.kind(shape.features)
        else:
            lifter = self.residual(module, shape, who)
        like = next(module.parameters(), torch.empty(0))
        return LiftedModule(module, lifter.to(like.device, like.dtype), self.index, who)

    def residual(self, module: nn.Module, shape: OutputShape, who: str) -> residual.Residual:
        """One of the named kinds, initialized."""
        assert isinstance(self.kind, str)
        if not self.learns:
            merge.check_mergeable(module, who)
        nonnegative_inputs_only = self.kind == "block" and self.activation == "relu"
        if nonnegative_inputs_only and isinstance(last := merge.last_layer(module), SIGNED):
            raise TorchliftError(f"{who}: {residual.NEGATIVE.format(type(last).__name__)}")
        bias = self.learns or isinstance(merge.last_layer(module).bias, Tensor)
        lifter = residual.build_residual(self.kind, shape, self.width, self.activation, bias)
        residual.initialize_residual(lifter, self.init, self.scale, self.sparsity)
        return lifter

    def project(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """The base model again: merged if linear, otherwise trained by ``fit`` to match the lifted one."""
        plain = super().project(problem)
        if not self.learns:
            return plain
        lifted_modules = dict.fromkeys(self.lifted_modules(problem), self.index)
        if fit is None:
            raise needs_fit(self, "distils the lifted latent:")
        distil = Distil(plain, problem, lifted_modules, self.match, self.mix, self.freeze_head)
        fit(distil, name="project")
        return distil.result()

    def merge(self, problem: Problem) -> Problem:
        """The exact projection of a lifter that is linear in the end; other kinds have none."""
        if self.learns:
            raise TorchliftError(
                f"{self!r} has no exact projection: only kinds 'linear' and 'fading' merge; use project."
            )
        return self.project(problem)

    def who(self, name: str) -> str:
        """How errors speak of the lifter."""
        kind = self.kind if isinstance(self.kind, str) else "module"
        return f"Lifter({self.where!r}, kind={kind!r}) after {name!r}"


def deviation(problem: Problem, batch: Batch) -> dict[str, float]:
    """‖e(z) − z‖ / ‖z‖ of every lifter on a batch: zero where it is still the identity."""
    body = problem.body()
    lifted = (
        {n: node for n, node in nodes(body) if isinstance(node, LiftedModule)} if body is not None else {}
    )
    if not lifted:
        return {}
    problem = copy.deepcopy(problem).eval()
    before = {name: tap(problem, f"{name}.inner", node.index) for name, node in lifted.items()}
    after = {name: tap(problem, name, node.index) for name, node in lifted.items()}
    with torch.no_grad():
        problem.objective(batch)
    pairs = {name: (torch.cat(before[name].drain()), torch.cat(after[name].drain())) for name in lifted}
    return {name: float((e - z).norm() / z.norm()) for name, (z, e) in pairs.items()}
