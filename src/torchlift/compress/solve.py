"""One layer compressed: its least-squares weights for what reaches it now, on a grid and under a mask."""

import contextlib
import dataclasses
from collections.abc import Generator

import torch
from torch import Tensor, nn

from torchlift.compress.grid import Factored, Gridded, masked, on_grid, refined_under_mask, swept
from torchlift.compress.linear_maps import LinearMap
from torchlift.compress.moments import LayerMoments
from torchlift.compress.refit import DAMPING, LeastSquares, bias_for
from torchlift.core.stored import store


@dataclasses.dataclass(frozen=True)
class WeightForm:
    """What a layer's weights are to be: on a grid of so many bits, with so many zeros; neither: only
    refit."""

    bits: int | None = None
    group: int | None = None
    sparsity: float = 0.0


@dataclasses.dataclass(frozen=True, eq=False)
class SolvedLayer:
    """A layer's new weights, as a matrix; where they are on a grid, its levels and steps."""

    weight: Tensor
    error: Tensor
    """(1,): ‖y − ŷ‖² / ‖y‖² on the calibration data, about the means where there is a bias."""
    bias: Tensor | None = None
    levels: Tensor | None = None
    step: Tensor | None = None
    kept: Tensor | None = None

    @property
    def size(self) -> float:
        """About how many bytes it takes: the entropy of the levels and a float for each step."""
        if self.levels is None or self.step is None:
            return 4.0 * int((self.weight != 0).sum())
        _, counts = self.levels.unique(return_counts=True)
        share = counts.double() / counts.sum()
        return float(-(share * share.log2()).sum() * self.levels.numel() / 8) + 4.0 * self.step.numel()

    def tensors(self) -> dict[str, Tensor]:
        """As a journal holds it."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in fields.items() if value is not None}


@dataclasses.dataclass(frozen=True, eq=False)
class LayerProblem:
    """A layer's problem on the calibration data, ready to be solved for several forms."""

    one: LinearMap
    module: nn.Module
    moments: LayerMoments
    problem: LeastSquares
    best: Tensor
    """The least-squares weights (or those it has, without a refit)."""
    bias: bool
    factored: Factored

    @classmethod
    def of(
        cls,
        one: LinearMap,
        work: nn.Module,
        moments: LayerMoments,
        *,
        refit: bool = True,
        damping: float = DAMPING,
    ) -> "LayerProblem":
        """From what reaches the layer now."""
        module = work.get_submodule(one.module)
        prior = one.matrix(module, one.weight_of(work))
        bias = one.bias_of(work) is not None
        problem = LeastSquares.of(moments, prior, bias=bias, damping=damping)
        weight = prior.to(problem.hessian)
        if not refit:
            problem = dataclasses.replace(problem, linear=problem.hessian @ weight.mT)
        factored = Factored.of(problem.hessian)
        best = factored.solve(problem.linear) if refit else weight
        return cls(one, module, moments, problem, best, bias, factored)

    def held_to(self, moments: LayerMoments) -> "LayerProblem":
        """The same inputs, other targets."""
        problem = self.problem.held_to(moments, bias=self.bias)
        return dataclasses.replace(
            self, moments=moments, problem=problem, best=self.factored.solve(problem.linear)
        )

    def solve(self, *forms: WeightForm) -> list[SolvedLayer]:
        """The best weights of each form that the passes find."""
        return [self.solved(form) for form in forms]

    def solved(self, form: WeightForm) -> SolvedLayer:
        """One form."""
        if form.bits is None and not form.sparsity:
            return self.finished(self.best)
        if form.bits is None:
            weight, kept = masked(self.best, self.factored, self.problem.linear, form.sparsity)
            return self.finished(weight, kept=kept)
        group = group_width(self.one, self.module, self.best.shape[-1], form.group)
        quantized, kept = on_grid(
            self.best, self.factored, self.problem.linear, form.bits, group=group, sparsity=form.sparsity
        )
        mask = kept if form.sparsity else None
        return self.finished(quantized.weight, levels=quantized.levels, step=quantized.step, kept=mask)

    def improved(self, now: SolvedLayer, form: WeightForm) -> SolvedLayer:
        """Weights of this form from those at hand, where targets have moved a little."""
        if form.bits is None and not form.sparsity:
            return self.finished(self.best)
        hessian, linear = self.problem.hessian, self.problem.linear
        kept = torch.ones_like(self.best, dtype=torch.bool) if now.kept is None else now.kept
        if form.bits is None or now.levels is None or now.step is None:
            return self.finished(refined_under_mask(now.weight, hessian, linear, kept), kept=kept)
        levels, step = swept(now.levels, now.step, hessian, linear, form.bits, kept)
        return self.finished(Gridded(levels, step).weight, levels=levels, step=step, kept=now.kept)

    def finished(self, weight: Tensor, **record: Tensor | None) -> SolvedLayer:
        """With its error and its bias."""
        bias = bias_for(self.moments, weight) if self.bias else None
        return SolvedLayer(weight, torch.tensor([self.problem.relative(weight)]), bias, **record)


def group_width(one: LinearMap, layer: nn.Module, columns: int, group: int | None) -> int | None:
    """Columns that share a step: ``group`` inputs with all their taps; None (a row) where they do not
    divide."""
    weight = layer.get_parameter(one.leaf)
    taps = max(1, columns * one.groups(layer) // weight.shape[one.columns_dim]) if weight.ndim > 2 else 1
    if group is None or columns % (group * taps):
        return None
    return group * taps


@contextlib.contextmanager
def tried(one: LinearMap, work: nn.Module, solved: SolvedLayer) -> Generator[None]:
    """The new weights in the layer for a while, without a record."""
    layer, weight, bias = work.get_submodule(one.module), one.weight_of(work), one.bias_of(work)
    before = weight.detach().clone(), None if bias is None else bias.detach().clone()
    with torch.no_grad():
        weight.copy_(one.tensor(layer, solved.weight.to(weight), weight.shape))
        if bias is not None and solved.bias is not None:
            bias.copy_(solved.bias.reshape(bias.shape).to(bias))
    try:
        yield
    finally:
        with torch.no_grad():
            weight.copy_(before[0])
            if bias is not None and before[1] is not None:
                bias.copy_(before[1])


@torch.no_grad()
def write_layer(one: LinearMap, work: nn.Module, solved: SolvedLayer) -> None:
    """Put the new weights into the layer, with their storage record, and the bias that goes with them."""
    layer, weight, bias = work.get_submodule(one.module), one.weight_of(work), one.bias_of(work)
    kept = None if solved.kept is None else one.tensor(layer, solved.kept, weight.shape)
    if solved.levels is None or solved.step is None:
        weight.copy_(one.tensor(layer, solved.weight.to(weight), weight.shape))
        if kept is not None:
            store(work, one.weight, kept=kept)
    else:
        step = one.step_tensor(layer, solved.step, weight.shape)
        levels = one.tensor(layer, solved.levels, weight.shape).to(torch.int32)
        store(work, one.weight, step=step, levels=levels, kept=kept)
    if bias is not None and solved.bias is not None:
        bias.copy_(solved.bias.reshape(bias.shape).to(bias))
