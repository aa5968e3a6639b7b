"""Block-coordinate descent: states layer by layer, then all weights, on all samples (Askari et al. 2018)."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn
from torch.special import xlogy

from torchlift.convex.activations import Activation, Linear, Softmax
from torchlift.convex.solvers.sketch import sketched_ridge
from torchlift.core import Batch, Task
from torchlift.errors import TorchliftError
from torchlift.methods.lifted import streamed
from torchlift.methods.lifted.blocks import BlockTask
from torchlift.methods.lifted.layers import Conv, DenseLayer, Layer
from torchlift.methods.lifted.lift import Mu, StateLift
from torchlift.methods.lifted.network import Network, StatesByLayer
from torchlift.methods.lifted.penalties import Bregman, Classical, Penalty
from torchlift.methods.lifted.recursive import RecurrentNet
from torchlift.methods.lifted.shard import Alone, Shard, Slice
from torchlift.methods.lifted.solvers import descent
from torchlift.methods.lifted.solvers.descent import Accelerated, DescentRule, Exact, Linearized
from torchlift.methods.lifted.solvers.glm import WeightBlock
from torchlift.methods.lifted.solvers.joint import joint_states
from torchlift.methods.lifted.solvers.output import as_targets, simplex_cross_entropy
from torchlift.methods.lifted.solvers.regularizers import Regularizer, regularized_weights
from torchlift.methods.lifted.solvers.states import Above, StateBlock
from torchlift.methods.lifted.solvers.xstep import nnls, quadratic_domain
from torchlift.methods.lifted.stages import ProcessLayers
from torchlift.train.stepping import StepContext

Order = Literal["descending", "ascending", "red_black", "jacobi"]


def update_waves(order: Order, hidden: int) -> list[list[int]]:
    """Which hidden layers are updated together, in turn: a wave sees only what earlier waves left."""
    if order not in get_args(Order):
        raise ValueError(f"order: {order!r} is none of {', '.join(get_args(Order))}")
    match order:
        case "descending":
            return [[i] for i in reversed(range(hidden))]
        case "ascending":
            return [[i] for i in range(hidden)]
        case "red_black":
            return [w for w in (list(range(hidden - 1, -1, -2)), list(range(hidden - 2, -1, -2))) if w]
        case "jacobi":
            return [list(range(hidden))] if hidden else []


@dataclasses.dataclass(frozen=True)
class BCD(StateLift):
    """min over states, then over weights, again and again; all but ``jacobi`` never raise the objective.

    ``update`` is how far each block is taken: exact, linearized, accelerated, momentum, adaptive, or a rule;
    None is exact, and accelerated for the quadratic penalty, whose blocks are not convex.
    ``growth`` multiplies every μ after each ``every`` sweeps; ``tolerance`` stops on the relative change of
    the layers' penalties and the loss. ``rho``‖W‖² (plain sums) or any ``regularizer`` acts on the weights.

    A sweep is an epoch. In one batch of all samples every block goes as far as ``update`` says. Over several
    batches (data need not fit into memory) states are updated batch by batch and the weights at the end, by
    one majorised step from Gram matrices that were summed up on the way; for the classical penalty that step
    is exact. States are kept from sweep to sweep where data stand in memory, unless ``chunk`` asks for
    batches of that many samples (in ``lifted.train``) whose states start from the forward pass and are
    forgotten.

    ``parallel="layers"`` partitions the layers over the processes of ``torchrun`` instead of the samples:
    each has the states and weights and solves the blocks of its own layers, those of one color of
    ``order="red_black"`` at the same time as all others. All samples are one batch.

    ``states="joint"`` finds all hidden states at once, where the penalty is jointly convex (classical).
    ``output`` λ makes the output a state too: loss(y, z) + λ‖z − v_{L+1}‖², with z in closed form ("mse") or
    on the simplex by its dual ("cross_entropy").

    Extensions: ``state_l1`` weighs the ℓ₁ norm of all hidden states, which must not be negative;
    ``input_noise`` s makes the first layer robust to inputs that are off by noise of deviation s
    (for each sample E‖W₁·noise‖² = s²‖W₁‖² is added inside the penalty: exact for quadratics, else a bound);
    ``learn_slopes`` fits the slope of every ``nn.LeakyReLU``; ``sketch`` finds the weights of least-squares
    blocks (classical penalty) from so many random sums of samples instead of all: cheaper, not monotone.
    """

    order: Order = "descending"
    update: str | DescentRule | None = None
    rho: float = 1e-3
    regularizer: Regularizer | None = None
    growth: float = 1.0
    every: int = 1
    tolerance: float = 0.0
    input_noise: float = 0.0
    learn_slopes: bool = False
    chunk: int | None = None
    penalty: str = "bregman"
    mu: Mu = 1.0
    states: Literal["layers", "joint"] = "layers"
    output: float | None = None
    state_l1: float = 0.0
    parallel: Literal["samples", "layers"] = "samples"
    sketch: int | None = None

    def __post_init__(self) -> None:
        update_waves(self.order, 1)
        if self.parallel not in ("samples", "layers"):
            raise TorchliftError(f"BCD: parallel is 'samples' or 'layers', got {self.parallel!r}.")
        without = {
            "states='joint'": self.states == "joint",
            "output": self.output is not None,
            "chunk": self.chunk is not None,
            "learn_slopes": self.learn_slopes,
        }
        if self.parallel == "layers" and any(without.values()):
            names = ", ".join(name for name, there in without.items() if there)
            raise TorchliftError(f"BCD: parallel='layers' goes without {names}.")
        if self.states not in ("layers", "joint"):
            raise TorchliftError(f"BCD: states is 'layers' or 'joint', got {self.states!r}.")
        if self.sketch is not None and (self.penalty != "classical" or self.regularizer is not None):
            raise TorchliftError("BCD: sketch is for penalty='classical' without a regularizer.")
        if self.states == "joint" and self.state_l1:
            raise TorchliftError("BCD: state_l1 goes with states='layers'.")
        if self.states == "joint" and self.penalty != "classical":
            raise TorchliftError("BCD: states='joint' needs penalty='classical', the jointly convex one.")
        if self.output is not None and not self.output > 0:
            raise TorchliftError(f"BCD: output is a positive weight, got {self.output}.")
        descent.descent_rule(self.rule)
        if self.chunk is not None and self.chunk < 1:
            raise TorchliftError(f"BCD: chunk is a number of samples, got {self.chunk}.")

    @property
    def rule(self) -> DescentRule:
        """How blocks are updated."""
        return descent.descent_rule(
            self.update or ("accelerated" if self.penalty == "quadratic" else "exact")
        )

    def problem(self, task: Task, loss: Activation, shard: Shard | None = None) -> "BCDTask":
        """The task, lifted."""
        if isinstance(task.model, RecurrentNet):
            return RecurrentTask(task, loss, self, shard)
        if self.parallel == "layers":
            if shard is not None:
                raise TorchliftError("BCD: parallel='layers' does not take shard=: start it by torchrun.")
            return LayerTask(task, loss, self)
        return BCDTask(task, loss, self, shard)

    def sweep_states(
        self, network: Network, x: Tensor, y: Tensor, states: list[Tensor], shard: Shard | None = None
    ) -> None:
        """Update every hidden state in place of the list."""
        if self.states == "joint":
            states[:] = joint_states(network, x, y, states)
            return
        shard, rule = shard or Alone(), self.rule
        for wave in update_waves(self.order, network.hidden):
            new = {i: state_step(network, i, x, y, states, rule, shard) for i in wave}
            for i, state in new.items():
                states[i] = torch.lerp(states[i], state, 0.5) if self.order == "jacobi" else state

    def sweep_weights(
        self,
        network: Network,
        x: Tensor,
        y: Tensor,
        states: list[Tensor],
        shard: Shard | None = None,
        trained: Sequence[bool] | None = None,
    ) -> None:
        """Update the weights of every layer that is trained: they are independent given the states."""
        below, above, shard = [x, *states], [*states, y], shard or Alone()

        for i, layer in enumerate(network.layers):
            if trained is None or trained[i]:
                noise = self.input_noise if i == 0 else 0.0
                penalty, mu = network.penalties[i], network.mus[i]
                layer.theta = self.weight_step(layer, penalty, mu, below[i], above[i], shard, noise)

    def weight_step(
        self,
        layer: Layer,
        penalty: Penalty,
        mu: float,
        below: Tensor,
        above: Tensor,
        shard: Shard,
        noise: float = 0.0,
    ) -> Tensor:
        """argmin over θ of μ ΣP(u, v) + ρ‖W‖² (or R(W)), as far as ``update`` goes."""
        penalty = penalty.in_v
        rows, target, rule = layer.rows(below), layer.rows_of(above), self.rule
        samples = float(shard.sum(rows.new_tensor(float(len(rows))))) if noise else 0.0
        rho = self.ridge(penalty, mu, samples, noise)
        if self.regularizer is not None:
            return regularized_weights(
                rows,
                target,
                penalty,
                mu,
                self.regularizer,
                layer.theta,
                bias=layer.bias,
                rule=rule,
                shard=shard,
            )
        least_squares = isinstance(penalty, Classical)
        if self.sketch is not None and least_squares and rows.shape[1] < self.sketch < len(rows):
            if shard.processes > 1 or not layer.bias:
                raise TorchliftError("BCD: sketch is for one process and layers with a bias.")
            return theta_of(*sketched_ridge(rows, target, mu / 2, rho, self.sketch))
        block = WeightBlock(rows, target, penalty, mu, rho, layer.bias, shard)
        if least_squares and isinstance(rule, Exact | Linearized | Accelerated):
            return block.step(layer.theta)  # the majorant is the problem itself: one ridge solve
        return rule(block.block(), layer.theta)

    def ridge(self, penalty: Penalty, mu: float, rows: float, noise: float) -> float:
        """The weight of ‖W‖²: ρ, and what noisy inputs add over so many rows."""
        return self.rho + mu * penalty.lipschitz_v * rows * noise**2 / 2

    def not_streamed(self, network: Network) -> str | None:
        """Why the weights cannot be found from streamed Gram matrices."""
        exact = isinstance(self.rule, Exact)
        majorised = [p for p in network.penalties if not isinstance(p, Classical) and not _square(p)]
        if exact and majorised:
            return "update='exact' with this penalty and loss: say update='linearized', or 'accelerated'"
        if self.regularizer is not None:
            return "a regularizer"
        if self.learn_slopes:
            return "learn_slopes"
        if any(not p.convex_v for p in network.penalties):
            return "the quadratic penalty, whose step needs a line search"
        return None


class BCDTask(BlockTask):
    """A sweep per epoch."""

    def __init__(self, task: Task, loss: Activation, method: BCD, shard: Shard | None = None) -> None:
        super().__init__(task, loss, method.penalty, method.mu, shard, method.state_l1)
        if method.output is not None:
            lift_output(self.network, loss, method.output)
        self.method, self.sweeps = method, 0
        self.kept: list[Tensor] = []
        """States of all samples, in the order of the data; none where batches come from elsewhere."""
        self.last: Tensor | None = None
        self.equations: list[dict[str, Tensor]] = []
        if method.regularizer is not None and method.input_noise:
            raise TorchliftError("BCD: input_noise acts through rho, which a regularizer replaces: drop one.")

    def memory(self) -> dict[str, Any]:
        """States, what was summed up, the energies of the last sweep."""
        return {"kept": self.kept, "last": self.last, "equations": self.equations, "sweeps": self.sweeps}

    @torch.no_grad()
    def prepare(self, batches: Iterable[Batch]) -> None:
        """States of the forward pass, to be kept from sweep to sweep."""
        if self.method.chunk is not None or not self.network.hidden:
            return
        states = [self.network.states(self.checked(batch)) for batch in batches]
        self.kept = [torch.cat(parts) for parts in zip(*states, strict=True)]
        self.indexed = True

    @torch.no_grad()
    def start(self, context: StepContext) -> None:
        """All processes start from the first one's weights, and states."""
        super().start(context)
        shard = Slice(context.rank, context.world).shard
        self.kept = [shard.first(state) for state in self.kept]

    def step(self, batch: Batch, context: StepContext) -> None:
        """States of the batch, then the weights: at once, or when it is the last of its sweep."""
        network, method = self.network, self.method
        x, y = self.pair(batch)
        y = self.targets(y, x)
        if context.batch == 0:
            self.grow()
        mine = Slice.of(len(x), context.rank, context.world)
        my_x, my_y = mine.take(x), mine.take(y)
        states = [mine.take(s) for s in self.recall(batch)] or network.states(my_x)
        labels, my_y = my_y, self.output_state(my_x, my_y, states)
        if context.batches > 1 or method.chunk is not None:
            method.sweep_states(network, my_x, my_y, states, mine.shard)
            self.gather(my_x, my_y, states, mine.shard)
            self.note(mine.shard.sum(self.parts(my_x, states, my_y, labels)), len(x))
            if context.last:
                self.solve()
        else:
            shard = self.shard or mine.shard
            method.sweep_states(network, my_x, my_y, states, shard)
            if method.learn_slopes:
                network.learn_slopes(my_x, my_y, states, shard)
            method.sweep_weights(network, my_x, my_y, states, shard, self.trained)
            count = len(x) if self.shard is None else int(self.shard.sum(torch.tensor(len(x))))
            self.note(shard.sum(self.parts(my_x, states, my_y, labels)), count)
        self.keep(batch, [mine.join(state, len(x)) for state in states])
        if context.last:
            self.check_convergence()

    def targets(self, y: Tensor, x: Tensor) -> Tensor:
        """Labels as states of the output layer, in the domain of the loss."""
        if self.method.output is None:
            return self.network.targets(y, x)
        self.network.check(x)
        some = self.network.output((self.network.states(x[:1]) or [x[:1]])[-1])
        return as_targets(y, some.expand(len(y), *some.shape[1:]), self.output)

    def output_state(self, x: Tensor, y: Tensor, states: list[Tensor]) -> Tensor:
        """z between the labels and v_{L+1}, or the labels themselves."""
        lam = self.method.output
        if lam is None:
            return y
        v = self.network.output(states[-1] if states else x)
        if isinstance(self.output, Linear):
            return (y + 2 * lam * v) / (1 + 2 * lam)
        return simplex_cross_entropy(v, y, lam)

    def parts(self, x: Tensor, states: list[Tensor], target: Tensor, labels: Tensor) -> Tensor:
        """Every layer's energy, the loss last: that of an output state with its tie."""
        energies = self.network.parts(x, states, target)
        if self.method.output is None:
            return energies
        loss = (target - labels).square() / 2 if isinstance(self.output, Linear) else -xlogy(labels, target)
        return torch.cat([energies[:-1], loss.sum()[None] + 2 * self.method.output * energies[-1:]])

    def grow(self) -> None:
        """μ of a new sweep."""
        network, method = self.network, self.method
        if self.sweeps and self.sweeps % method.every == 0:
            network.mus[:-1] = [mu * method.growth for mu in network.mus[:-1]]
        self.sweeps += 1

    def recall(self, batch: Batch) -> list[Tensor]:
        """The batch's states as the last sweep left them, if they are kept."""
        return [state.index_select(0, places(batch)) for state in self.kept]

    def keep(self, batch: Batch, states: list[Tensor]) -> None:
        """Remember the batch's states."""
        for kept, state in zip(self.kept, states, strict=False):
            kept.index_copy_(0, places(batch), state)

    def gather(self, x: Tensor, y: Tensor, states: list[Tensor], shard: Shard) -> None:
        """Add a batch to the normal equations of every layer."""
        network = self.network
        reason = self.method.not_streamed(network)
        if reason is not None:
            raise TorchliftError(f"BCD over several batches, or with chunk, cannot have {reason}.")
        self.equations = self.equations or [streamed.none_yet(layer) for layer in network.layers]
        layers = zip(self.equations, network.layers, network.penalties, strict=True)
        pairs = zip([x, *states], [*states, y], strict=True)
        self.equations = [
            streamed.added(equations, layer, penalty, below, above, shard)
            for (equations, layer, penalty), (below, above) in zip(layers, pairs, strict=True)
        ]

    def solve(self) -> None:
        """New weights from what was gathered; callers' own shards are summed up only here."""
        network, shard = self.network, self.shard or Alone()
        self.sums = shard.sum(self.sums)
        for i, (equations, layer) in enumerate(zip(self.equations, network.layers, strict=True)):
            penalty, mu = network.penalties[i], network.mus[i]
            noise = self.method.input_noise if i == 0 else 0.0
            rho = self.method.ridge(penalty, mu, float(shard.sum(equations["rows"])), noise)
            theta = streamed.solution(equations, layer, 2 * rho / (mu * penalty.lipschitz_v), shard)
            layer.theta = theta if self.trained[i] else layer.theta
        self.equations = []

    def check_convergence(self) -> None:
        """Whether the sweep changed nothing beyond the tolerance."""
        parts, last = self.sums[:-1], self.last
        self.last = parts
        if last is not None:
            self.converged = bool(((parts - last).abs() <= self.method.tolerance * parts.abs().sum()).all())

    def regularization(self) -> float:
        """(ρ‖W‖² or R(W))/n, with what noisy inputs add."""
        return self.weight_cost(range(len(self.network.layers))) / max(float(self.sums[-1]), 1.0)

    def weight_cost(self, layers: Iterable[int]) -> float:
        """ρ‖W‖² or R(W) of some layers, over the samples of this epoch."""
        total, samples = 0.0, float(self.sums[-1])
        for i in layers:
            layer = self.network.layers[i]
            if self.trained[i] and self.method.regularizer is not None:
                total += float(self.method.regularizer.value(layer.weight))
            elif self.trained[i]:
                noise, penalty = self.method.input_noise if i == 0 else 0.0, self.network.penalties[i]
                rho = self.method.ridge(penalty, self.network.mus[i], samples, noise)
                total += rho * float(layer.weight.square().sum())
        return total


class LayerTask(BCDTask):
    """A sweep per epoch, the layers partitioned over the processes: each has its own states and weights.

    All weights are brought together in every process when the problem is evaluated or saved, all states in
    the first one when it is saved; both by all processes at the same time.
    """

    def __init__(self, task: Task, loss: Activation, method: BCD, shard: Shard | None = None) -> None:
        super().__init__(task, loss, method, shard)
        self.stage: ProcessLayers | None = None
        self.like: Tensor | None = None
        """The output of a sample."""
        self.together = True
        """Whether this process has all weights as they are now."""
        self.ridges = 0.0

    def memory(self) -> dict[str, Any]:
        """With the states of all layers, in the first process."""
        kept = self.kept if self.stage is None else self.stage.collect(self.kept)
        return {"last": self.last, "sweeps": self.sweeps, "ridges": self.ridges, "kept": kept}

    def prepare(self, batches: Iterable[Batch]) -> None:
        """States are found in the first step, by all processes together."""
        del batches
        self.indexed = True

    @torch.no_grad()
    def start(self, context: StepContext) -> None:
        """All processes start from the first one's weights."""
        BlockTask.start(self, context)

    @torch.no_grad()
    def bring_together(self) -> None:
        """All weights, in every process."""
        if self.stage is not None and not self.together:
            self.stage.share_weights()
            self.together = True
            self.write_back()

    def train(self, mode: bool = True) -> Self:
        """What is evaluated has all weights."""
        if not mode:
            self.bring_together()
        return super().train(mode)

    def state_dict(self, *args: Any, **options: Any) -> dict[str, Any]:
        """All weights, and in the first process all states."""
        self.bring_together()
        return super().state_dict(*args, **options)

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Go on: every process finds its own among the states of all."""
        self.stage, self.together = None, True
        super().set_extra_state(state)

    def write_back(self) -> None:
        """Put the weights this process has into the module."""
        for layer, trained in zip(self.network.layers, self.trained, strict=True):
            if len(layer.theta) and (trained or layer.norm is None):
                layer.write_back()

    def regularization(self) -> float:
        """Of all processes' weights, as the last sweep left them."""
        return self.ridges

    def staged(self, x: Tensor, context: StepContext) -> ProcessLayers:
        """This process's layers; the first call drops the weights of the others, and their states."""
        network = self.network
        if context.batches > 1:
            raise TorchliftError("BCD: parallel='layers' needs one batch: batch_size=len(train), or more.")
        if context.world > len(network.layers):
            raise TorchliftError(
                f"BCD: {context.world} processes for {len(network.layers)} layers: start fewer processes."
            )
        if self.stage is None:
            network.check(x)
            states = network.states(x[:1])
            self.like = network.output((states or [x[:1]])[-1])
            self.stage = ProcessLayers(
                network, [one.shape[1:] for one in states], context.rank, context.world
            )
            if len(self.kept) == network.hidden:
                self.kept = [self.kept[i] for i in self.stage.hidden]
        if self.together:
            self.stage.drop_weights()
            self.together = False
        return self.stage

    def step(self, batch: Batch, context: StepContext) -> None:
        """Own states, then own weights."""
        x, labels = self.pair(batch)
        stage = self.staged(x, context)
        assert self.like is not None
        y = as_targets(labels, self.like.expand(len(x), *self.like.shape[1:]), self.output)
        self.grow()
        states = dict(zip(stage.hidden, self.recall(batch), strict=False)) or stage.forward(x)
        self.sweep(stage, x, y, states)
        self.note(stage.parts(x, states, y), len(x))
        own = x.new_tensor(self.weight_cost(stage.own) / len(x), dtype=torch.float64)
        self.ridges = float(stage.sum(own))
        self.kept = self.kept or [torch.empty_like(states[i]) for i in stage.hidden]
        self.keep(batch, [states[i] for i in stage.hidden])
        self.check_convergence()

    def sweep(self, stage: ProcessLayers, x: Tensor, y: Tensor, states: dict[int, Tensor]) -> None:
        """States wave by wave, then weights."""
        network, method = self.network, self.method
        for wave in update_waves(method.order, network.hidden):
            stage.exchange(x, states)
            own = [i for i in wave if i in stage.own]
            new = {i: state_step(network, i, x, y, states, method.rule) for i in own}
            damp = 0.5 if method.order == "jacobi" else 1.0
            states |= {i: torch.lerp(states[i], state, damp) for i, state in new.items()}
        stage.exchange(x, states)
        for i in stage.own:
            if self.trained[i]:
                below, above = states[i - 1] if i else x, y if i == network.hidden else states[i]
                noise = method.input_noise if i == 0 else 0.0
                layer, penalty, mu = network.layers[i], network.penalties[i], network.mus[i]
                layer.theta = method.weight_step(layer, penalty, mu, below, above, Alone(), noise)
        stage.send_weights_down()


class RecurrentTask(BCDTask):
    """A sweep over the states of all time steps, last first; then the cell, which all of them share."""

    def __init__(self, task: Task, loss: Activation, method: BCD, shard: Shard | None = None) -> None:
        assert isinstance(task.model, RecurrentNet)
        layers = cell_and_head(task.model)
        BlockTask.__init__(self, task, loss, method.penalty, method.mu, shard, method.state_l1, layers)
        self.method, self.sweeps = method, 0
        self.kept, self.last, self.equations = [], None, []
        without = {
            "states='joint'": method.states == "joint",
            "parallel='layers'": method.parallel == "layers",
            "shard": shard is not None,
            "output": method.output is not None,
            "chunk": method.chunk is not None,
            "learn_slopes": method.learn_slopes,
            "order": method.order != "descending",
        }
        if any(without.values()):
            names = ", ".join(name for name, there in without.items() if there)
            raise TorchliftError(f"BCD: recurrent networks go without {names}.")

    @torch.no_grad()
    def prepare(self, batches: Iterable[Batch]) -> None:
        """States of the forward pass, time step by time step."""
        states = [self.unrolled.states(self.pair(batch)[0]) for batch in batches]
        self.kept = [torch.cat(parts) for parts in zip(*states, strict=True)]
        self.indexed = True

    @property
    def unrolled(self) -> RecurrentNet:
        """The network."""
        assert isinstance(self.task.model, RecurrentNet)
        return self.task.model

    def step(self, batch: Batch, context: StepContext) -> None:
        """States from the last time step to the first, then both layers."""
        if context.batches > 1 or context.world > 1:
            raise TorchliftError("BCD: recurrent networks need one process and one batch of all samples.")
        (cell, head), method = self.network.layers, self.method
        x, labels = self.pair(batch)
        self.grow()
        states = self.recall(batch)
        y = as_targets(labels, head.forward(states[-1]), self.output)
        for t in reversed(range(len(states))):
            block = self.block(t, x, y, states)
            states[t] = method.rule(block.block(), states[t])
        below = torch.cat([with_last_state(x, states, t) for t in range(len(states))])
        penalty, mu = self.network.penalties[0], self.network.mus[0]
        if self.trained[0]:
            cell.theta = method.weight_step(cell, penalty, mu, below, torch.cat(states), Alone())
        if self.trained[1]:
            head.theta = method.weight_step(head, self.network.penalties[1], 1.0, states[-1], y, Alone())
        tied = penalty.value(torch.cat(states), cell.forward(below)).sum()
        loss = self.network.penalties[1].value(y, head.forward(states[-1])).sum()
        self.note(torch.stack([tied, loss]), len(x))
        self.keep(batch, states)
        self.check_convergence()

    def block(self, t: int, x: Tensor, y: Tensor, states: list[Tensor]) -> StateBlock:
        """The states of time t between their neighbors in time."""
        cell, head = self.network.layers
        penalty, mu = self.network.penalties[0], self.network.mus[0]
        v = cell.forward(with_last_state(x, states, t))
        if t + 1 == len(states):
            last = self.network.penalties[1]
            above = Above(last, 1.0, y, head.forward, lambda out: out @ head.weight, head.norm_of(states[t]))
            return StateBlock(penalty, mu, v, above)
        inputs = x.shape[2]
        recurrent, entering = (
            cell.weight[:, inputs:],
            x[:, t + 1] @ cell.weight[:, :inputs].mT + cell.theta[:, -1],
        )
        norm = float(torch.linalg.matrix_norm(recurrent, 2))

        def seen(state: Tensor, entering: Tensor) -> Above:
            return Above(
                penalty,
                mu,
                state,
                lambda u: u @ recurrent.mT + entering,
                lambda out: out @ recurrent,
                norm,
                lambda some: seen(state[some], entering[some]),
            )

        return StateBlock(penalty, mu, v, seen(states[t + 1], entering))


def cell_and_head(model: RecurrentNet) -> list[Layer]:
    """The two layers of a recurrent network; the first is used at every time step."""
    cell = DenseLayer("cell", model.cell, nn.Sequential(), None)
    cell.activation = model.activations[0]
    return [cell, DenseLayer("head", model.head, nn.Sequential(), None)]


def with_last_state(x: Tensor, states: list[Tensor], t: int) -> Tensor:
    """[x_t, u_{t−1}], u₀ = 0."""
    return torch.cat([x[:, t], states[t - 1] if t else torch.zeros_like(states[0])], 1)


def lift_output(network: Network, loss: Activation, lam: float) -> None:
    """The output is tied to its pre-activation by λ‖z − v‖² = 2λ·½‖z − v‖²."""
    if not isinstance(loss, Linear | Softmax) or isinstance(network.layers[-1], Conv):
        raise TorchliftError("BCD: output is for a Linear last layer and loss 'mse' or 'cross_entropy'.")
    network.penalties[-1], network.mus[-1] = Bregman(Linear()), 2 * lam


def theta_of(weight: Tensor, bias: Tensor) -> Tensor:
    """[W | b]."""
    return torch.cat([weight, bias[:, None]], 1)


def places(batch: Batch) -> Tensor:
    """Where the samples of an indexed batch stand in the data."""
    return batch["index"] if isinstance(batch, dict) else batch[-1]


def state_step(
    network: Network,
    index: int,
    x: Tensor,
    y: Tensor,
    states: StatesByLayer,
    rule: DescentRule,
    shard: Shard | None = None,
) -> Tensor:
    """One hidden layer's states with everything else fixed; exact quadratic cases go to the NNLS solvers."""
    v = network.preactivation(index, x, states)
    above = network.above(index, states, y)
    penalty, mu = network.penalties[index], network.mus[index]
    if isinstance(rule, Exact) and _is_quadratic(network, index, v):
        layer = network.layers[index + 1]
        return nnls(
            layer.weight,
            layer.theta[:, -1],
            above.state,
            v,
            above.mu,
            mu,
            activation=penalty.activation,
            start=states[index],
        )
    return rule(StateBlock(penalty, mu, v, above, shard or Alone()).block(), states[index])


def _is_quadratic(network: Network, index: int, v: Tensor) -> bool:
    """f(u) = ½‖u‖² on a box or simplex below, ½‖u₊ − v₊‖² above, and a plain matrix between them."""
    above = network.penalties[index + 1]
    square = isinstance(above, Classical) or _square(above)
    here = network.penalties[index]
    plain = network.layers[index + 1].flat and len(network.layers[index + 1].before) == 0
    quadratic = isinstance(here, Classical | Bregman) and quadratic_domain(here.activation, v) is not None
    return square and plain and quadratic and v.ndim == 2


def _square(penalty: Penalty) -> bool:
    """½‖u − v‖²."""
    return isinstance(penalty, Bregman) and isinstance(penalty.activation, Linear)
