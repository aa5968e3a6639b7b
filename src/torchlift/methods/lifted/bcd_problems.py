"""Problems that take sweeps as their steps: on samples, with layers over processes, over time."""

from collections.abc import Iterable
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.special import xlogy

from torchlift.convex.activations import Activation, Linear, Softmax
from torchlift.core import Batch, Task
from torchlift.errors import TorchliftError
from torchlift.methods.lifted import streamed
from torchlift.methods.lifted.blocks import BlockTask
from torchlift.methods.lifted.layers import Conv, DenseLayer, Layer
from torchlift.methods.lifted.network import Network
from torchlift.methods.lifted.penalties import Bregman
from torchlift.methods.lifted.recursive import RecurrentNet
from torchlift.methods.lifted.shard import Alone, Shard, Slice
from torchlift.methods.lifted.solvers.output import as_targets, simplex_cross_entropy
from torchlift.methods.lifted.solvers.states import Above, StateBlock
from torchlift.methods.lifted.stages import ProcessLayers
from torchlift.methods.lifted.sweeps import SweepMethod, state_step, update_waves
from torchlift.train.stepping import StepContext


class BCDTask(BlockTask):
    """A sweep per epoch."""

    def __init__(self, task: Task, loss: Activation, method: SweepMethod, shard: Shard | None = None) -> None:
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
        self.kept = [torch.cat(pieces) for pieces in zip(*states, strict=True)]
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
            self.note(mine.shard.sum(self.layer_energies(my_x, states, my_y, labels)), len(x))
            if context.last:
                self.solve()
        else:
            shard = self.shard or mine.shard
            method.sweep_states(network, my_x, my_y, states, shard)
            if method.learn_slopes:
                network.learn_slopes(my_x, my_y, states, shard)
            method.sweep_weights(network, my_x, my_y, states, shard, self.trained)
            count = len(x) if self.shard is None else int(self.shard.sum(torch.tensor(len(x))))
            self.note(shard.sum(self.layer_energies(my_x, states, my_y, labels)), count)
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

    def layer_energies(self, x: Tensor, states: list[Tensor], target: Tensor, labels: Tensor) -> Tensor:
        """Every layer's energy, the loss last: that of an output state with its tie."""
        energies = self.network.layer_energies(x, states, target)
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
        return [state.index_select(0, sample_indices(batch)) for state in self.kept]

    def keep(self, batch: Batch, states: list[Tensor]) -> None:
        """Remember the batch's states."""
        for kept, state in zip(self.kept, states, strict=False):
            kept.index_copy_(0, sample_indices(batch), state)

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
        terms, last = self.sums[:-1], self.last
        self.last = terms
        if last is not None:
            self.converged = bool(((terms - last).abs() <= self.method.tolerance * terms.abs().sum()).all())

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

    def __init__(self, task: Task, loss: Activation, method: SweepMethod, shard: Shard | None = None) -> None:
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
        self.note(stage.layer_energies(x, states, y), len(x))
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

    def __init__(self, task: Task, loss: Activation, method: SweepMethod, shard: Shard | None = None) -> None:
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
        self.kept = [torch.cat(pieces) for pieces in zip(*states, strict=True)]
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


def sample_indices(batch: Batch) -> Tensor:
    """Where the samples of an indexed batch stand in the data."""
    return batch["index"] if isinstance(batch, dict) else batch[-1]
