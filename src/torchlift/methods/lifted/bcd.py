"""Block-coordinate descent: states layer by layer, then all weights, on all samples (Askari et al. 2018)."""

import dataclasses

from torchlift.convex.activations import Activation
from torchlift.core import Task
from torchlift.errors import TorchliftError
from torchlift.methods.lifted.bcd_problems import BCDTask, LayerTask, RecurrentTask
from torchlift.methods.lifted.lift import StateLift
from torchlift.methods.lifted.recursive import RecurrentNet
from torchlift.methods.lifted.shard import Shard
from torchlift.methods.lifted.sweeps import SweepMethod


@dataclasses.dataclass(frozen=True)
class BCD(SweepMethod, StateLift):
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

    def problem(self, task: Task, loss: Activation, shard: Shard | None = None) -> BCDTask:
        """The task, lifted."""
        if isinstance(task.model, RecurrentNet):
            return RecurrentTask(task, loss, self, shard)
        if self.parallel == "layers":
            if shard is not None:
                raise TorchliftError("BCD: parallel='layers' does not take shard=: start it by torchrun.")
            return LayerTask(task, loss, self)
        return BCDTask(task, loss, self, shard)
