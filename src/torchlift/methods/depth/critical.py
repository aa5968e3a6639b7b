"""Critical lifting: one more layer that changes nothing on the data, and keeps critical points critical."""

import copy
import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from torchlift.core import Fit, ModuleLift, Node, Problem, masks_of, needs_fit, nodes
from torchlift.errors import SelectionError, TorchliftError
from torchlift.flow.trace import chunks, flow
from torchlift.loss import evaluating, inputs_and_target, output
from torchlift.methods.depth.deeper import Deeper, Gather
from torchlift.methods.depth.segments import nearest_activation, segments
from torchlift.methods.depth.spots import CONVOLUTIONS
from torchlift.methods.neural_lifting.lifter import BYPASSING
from torchlift.tree import like

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-11}
"""How straight a smooth activation has to be; less, and rounding takes over."""


@dataclasses.dataclass(frozen=True)
class CriticalLayer(ModuleLift):
    """W h + b ─lift→ W″ σ(W′ h + b′) + b″ with W″ diag(λ) W′ = W and all W′ h + b′ where σ(z) = λ z + μ.

    Bai et al. (2024), Definition 4.2 and the construction of Lemma A.1: the deeper network gives the same
    outputs on the inputs ``x``, and if the weights were a critical point of the loss there, so are the new
    ones. ``after`` is a glob on Linear layers and convolutions (channel by channel, in their groups); ``x``
    are the training inputs, or without them those of ``fit``. Several layers: a glob, or a chain (``"2"``,
    then ``"2.outer"``).

    ``width``: neurons of the new layer, at least min(in, out); more are zero neurons. ``residual``: the new
    layer has a skip connection, σ(W′ h + b′) + h (Definition A.2). ``seed`` picks a general member of the
    manifold of lifted points: a random invertible matrix between the factors; None is the proof's own point.
    A layer without a bias keeps the function too, but a critical point only where a constant added to its
    output changes nothing, as before a norm; merged after training, it has the bias that was learnt.
    ``activation``: by default that of the network near the layer. Smooth activations are straight only
    nearly: ``tolerance`` is how nearly, relative to the range of the neurons (None: as the precision allows;
    larger is easier to train); :meth:`gap` measures what comes of it. ``margin``: how far from the ends of a
    piece, in lengths of the inputs' range.

    The way back multiplies the layers with λ, μ fitted by least squares on the data: exact while the layer is
    linear there. ``fade=True`` makes it exact for good: σ turns into its straight pieces as t goes to 1.

    More than eight fields: the contract's five, the activation, and how straight it has to be.
    """

    rewrites: ClassVar[bool] = True

    after: str
    x: Any = dataclasses.field(default=None, repr=False, compare=False)
    width: int | None = None
    residual: bool = False
    seed: int | None = 0
    activation: nn.Module | None = dataclasses.field(default=None, compare=False)
    tolerance: float | None = None
    margin: float = 0.5
    fade: bool = False

    def __post_init__(self) -> None:
        if self.margin <= 0 or (self.tolerance is not None and self.tolerance <= 0):
            raise TorchliftError(
                f"CriticalLayer needs tolerance > 0 and margin > 0, got {self.tolerance} and {self.margin}."
            )

    @property
    def preserving(self) -> bool:
        """To rounding, unless a coarser tolerance is set (which counts for smooth activations)."""
        return self.tolerance is None or self.tolerance <= TOLERANCE[torch.float32]

    @property
    def reshapes(self) -> bool:
        """A layer without a bias may come back with one that it learnt."""
        return True

    @property
    def where(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  (its name here is ``after``)
        """The glob."""
        return self.after

    def accepts_module(self, module: nn.Module) -> str | None:
        """Why a layer cannot be two."""
        if type(module) not in (nn.Linear, *CONVOLUTIONS):
            return "not a Linear or a convolution"
        if not self.residual:
            return None
        if isinstance(module, CONVOLUTIONS):
            if module.groups != 1:
                return f"a residual layer mixes channels, groups={module.groups} do not"
            if isinstance(module.padding, str) or any(module.padding):
                return "a residual layer before padding would change the border"
        square = self.width in (None, module.get_parameter("weight").shape[1])
        return None if square else "a residual layer is as wide as its input: leave width out"

    def nodes(self, modules: Mapping[str, nn.Module]) -> Mapping[str, Node]:
        """Two layers for one, still to be placed."""
        return {
            name: Deeper(module, self.width, self.residual, self.seed, self.fade)
            for name, module in modules.items()
        }

    def lift(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """A copy of the problem with the new layers; data are looked at in evaluation mode."""
        inputs = self.inputs(fit)
        if inputs is None:
            raise needs_fit(self, "looks at the training inputs: pass x=, or")
        lifted, body = super().lift(problem), self.body(problem)
        mine = self.mine(lifted)
        self.check(body, list(mine))
        inputs = iter(inputs)
        first = next(inputs)
        shape = flow(body, next(chunks(like(first, next(iter(mine.values())).slope), 8)))
        seen = self.recorded(lifted, mine, itertools.chain([first], inputs))
        for name, node in mine.items():
            activation = self.activation or nearest_activation(body, shape, name, repr(self))
            nearly = self.tolerance or TOLERANCE.get(node.slope.dtype, 1e-3)
            node.set_on_pieces(activation, segments(activation, nearly, repr(self)), seen[name], self.margin)
            node.train(problem.training)
        return lifted

    def check(self, body: nn.Module, names: list[str]) -> None:
        """Errors for layers that cannot come back, or that nobody calls."""
        pruned = masks_of(body)
        for name in names:
            if f"{name}.weight" in pruned:
                raise SelectionError(f"{self!r}: merging would fill the pruned weight of {name!r}.")
            path = name.split(".")
            above = [body.get_submodule(".".join(path[:depth])) for depth in range(len(path))]
            if culprit := next(
                (type(module).__name__ for module in above if isinstance(module, BYPASSING)), None
            ):
                raise SelectionError(f"{self!r}: {culprit} reads the weight of {name!r} without calling it.")

    def project(self, problem: Problem, fit: Fit | None = None) -> Problem:
        """A copy of the problem with each pair merged: by fits on the data where there are any."""
        inputs = self.inputs(fit)
        if inputs is not None and not self.fade:
            problem = copy.deepcopy(problem)
            mine = self.mine(problem)
            seen = self.recorded(problem, mine, inputs) if mine else {}
            for name, node in mine.items():
                node.refit(seen[name])
        return super().project(problem, fit)

    def gap(self, problem: Problem, lifted: Problem) -> float:
        """The largest difference of outputs on ``x`` between a problem and its lift."""
        if self.x is None:
            raise TorchliftError(f"{self!r}.gap needs the inputs: make the lift with x=.")
        example = next(problem.parameters())
        with torch.no_grad():
            pairs = (
                (output(problem.predict(piece)), output(lifted.predict(piece)))
                for piece in chunks(like(self.x, example))
            )
            return max(float((a - b).abs().max()) for a, b in pairs)

    def mine(self, problem: Problem) -> dict[str, Deeper]:
        """This lift's nodes by name."""
        body = self.body(problem)
        return {n: node for n, node in nodes(body) if isinstance(node, Deeper) and node.way_back == self}

    def inputs(self, fit: Fit | None) -> Iterable[Any] | None:
        """The training inputs in pieces: those given, or those of the fit."""
        if self.x is not None:
            return chunks(self.x)
        return None if fit is None else (inputs_and_target(batch)[0] for batch in fit.batches())

    def recorded(self, problem: Problem, mine: Mapping[str, Deeper], inputs: Iterable[Any]) -> dict[str, Any]:
        """What the new neurons take and give on the inputs, in evaluation mode."""
        gathered = {name: Gather(node.axis) for name, node in mine.items()}
        for name, node in mine.items():
            node.observe = gathered[name]
        with evaluating(problem), torch.no_grad():
            for module in inputs:
                problem.predict(like(module, next(iter(mine.values())).slope))
        for node in mine.values():
            node.observe = None
        if silent := [name for name, gather in gathered.items() if gather.seen is None]:
            raise SelectionError(f"{self!r}: {silent[0]!r} is never called on these inputs.")
        return {name: gather.seen for name, gather in gathered.items()}
