"""Continuous sparsification with a target, fine-tuning, and an account of what was achieved."""

import dataclasses
import warnings
from functools import partial
from typing import Any

import torch

from torchlift import deploy
from torchlift.channels.groups import Plan
from torchlift.core import Fit, Problem, Task, matches, nodes
from torchlift.errors import TorchliftError
from torchlift.lifts import SoftMask
from torchlift.loss import inputs_and_target
from torchlift.methods.sparsity.accounts import closed, itself, quiet_projection, sparsity_log, with_target
from torchlift.methods.sparsity.channel_targets import ShrunkTarget, groups_of, shrunk_target
from torchlift.methods.sparsity.mask_options import Masking
from torchlift.methods.sparsity.pruned_weights import logger
from torchlift.methods.sparsity.switches import with_one_open
from torchlift.methods.sparsity.targets import MaskTarget, mask_target, meet_sparsity
from torchlift.targets import Target


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContinuousSparsification(Masking):
    """min over v, s of f(v ⊙ b(β, s)) + λ ‖b(β, s)‖₁, β: 1 → β_final; w = v ⊙ 1{s ≥ 0}; fine-tune w.

    Savarese, Silva, Maire (2020); thesis Algorithm 1. Options of :class:`~torchlift.lifts.SoftMask`. At most
    one target: ``sparsity`` (the part of the weights ``where`` picks), ``parameters``, ``macs`` or
    ``bytes`` of the whole model; without one, ``s_init`` decides (lower is sparser) as in the source.
    With ``granularity="channel"`` these three, and ``latency`` (milliseconds of a call on one of the run's
    batches), are of the model that :func:`~torchlift.deploy.shrink` leaves, met to 2 % or as near as whole
    channels allow; ``sparsity`` is the part of the gated weights, those of channels that can go.
    ``finetune``: the part of the budget spent on the pruned network, through the run's schedule once more at
    ``finetune_rate`` times its rates.
    With ``granularity="channel"`` layers coupled by sums and norms share their gates, so that
    :func:`torchlift.deploy.shrink` can remove what is closed. ``logit_rate``: how much faster than the
    weights the logits move; 1 as in the source, and with a target up to 1000 in runs too short for that.
    ``logit_step``: the logits have SGD of this rate with momentum 0.9 instead, whatever trains the weights:
    for runs by Adam or Muon, under which all logits move alike.
    ``round_to``: the channels that stay are multiples of it, where the widths were.
    ``ramp``: the part of the masked fit until a target is reached; less leaves the sparse network more time.
    With a target gates are rescaled so that training starts at w, unless ``rescale`` says otherwise.
    In the coordinates of :class:`Inside` weights are masked one by one, and the target is a ``sparsity``.
    Train with SGD: see the documentation.
    """

    sparsity: float | None = None
    parameters: int | None = None
    macs: float | None = None
    bytes: int | None = None
    latency: float | None = None
    finetune: float = 0.25
    finetune_rate: float = 1.0
    logit_rate: float | None = None
    logit_step: float | None = None

    def __post_init__(self) -> None:
        _ = self.target
        if self.logit_rate is not None and self.logit_step is not None:
            raise TorchliftError("give logit_rate= (times the run's rate) or logit_step= (SGD's), not both.")
        if self.latency is not None and self.granularity != "channel":
            raise TorchliftError('latency= needs granularity="channel": scattered zeros do not run faster.')
        if not 0 <= self.finetune < 1:
            raise TorchliftError(f"finetune is a fraction of the budget in [0, 1), got {self.finetune}.")
        _ = self.soft_mask(sparsity=self.sparsity)

    @property
    def target(self) -> Target | None:
        """The one that was given."""
        return Target.one_of(
            sparsity=self.sparsity,
            parameters=self.parameters,
            macs=self.macs,
            bytes=self.bytes,
            latency=self.latency,
        )

    def accepts(self, task: Task, fit: Fit | None = None) -> str | None:
        """What the mask says; of a lifted task, only targets that are the same in both models."""
        other = self.granularity != "weight" or (self.target is not None and self.sparsity is None)
        if other and next(nodes(task), None) is not None:
            return (
                "inside a lift, weights are masked one by one and the target is sparsity=: whole channels, "
                "parameters, macs and bytes would be those of the lifted model."
            )
        return super().accepts(task, fit)

    def __call__(self, task: Task, fit: Fit) -> Task:
        """Lift, fit, project, fine-tune."""
        mask, goal = self.mask(task, fit)
        lifted, plain = mask.lift(task), quiet_projection(mask.project)
        groups = {"*.logit": self.logit_options(fit)}
        total = sum(p.numel() for p in task.parameters())
        log = (
            sparsity_log(goal, total)
            if self.finetune
            else with_target(sparsity_log(goal, total), plain, goal)
        )
        fit(lifted, name="lifted", share=1 - self.finetune, groups=groups, preview=plain, log=log)
        if goal is not None and (isinstance(goal, ShrunkTarget) or goal.name == "bytes"):
            meet_sparsity(lifted, mask, goal)
        small = mask.project(lifted if goal else warned_of_extremes(lifted, mask.s_init))
        assert isinstance(small, Task)
        return self.tuned(small, fit, goal) if self.finetune else small

    def tuned(self, small: Task, fit: Fit, goal: MaskTarget | None) -> Task:
        """The pruned network trained on, its zeros frozen; of channels those of biases and norms too."""
        log = with_target(logger(self.where, self.skip), itself, goal)
        fit(small, name="finetune", share=self.finetune, rate=self.finetune_rate, log=log)
        return small

    def logit_options(self, fit: Fit) -> dict[str, Any]:
        """How the logits are trained."""
        if self.logit_step is None:
            return {"lr_factor": self.rate(fit)}
        return {"optimizer": partial(torch.optim.SGD, lr=self.logit_step, momentum=0.9)}

    def rate(self, fit: Fit) -> float:
        """The logits' rate: in a run of few steps they would hardly part at the weights' own."""
        if self.logit_rate is not None:
            return self.logit_rate
        if self.target is None:
            return 1.0
        steps = (1 - self.finetune) * fit.epochs * fit.steps
        return min(1000.0, max(1.0, (2000 / max(steps, 1.0)) ** 2))

    def mask(self, task: Task, fit: Fit) -> tuple[SoftMask, MaskTarget | None]:
        """The lift for this task: its groups found, its target turned into a sparsity."""
        options = self.schedule(fit, 1 - self.finetune)
        if self.rescale is None and self.target is not None:
            options["rescale"] = True
        example = (
            inputs_and_target(next(iter(fit.batches())))[0]
            if self.granularity == "channel" or self.macs
            else None
        )
        plan = self.plan(task, example) if self.granularity == "channel" else None
        if plan is not None:
            options |= self.coupled(plan)
        target = self.target
        if plan is None and self.latency is not None:
            raise TorchliftError("latency= needs a model whose channels can be followed.")
        if plan is not None and target is not None and target.name != "sparsity":
            goal = shrunk_target(task, plan, example, target)
        else:
            goal = mask_target(task, self.soft_mask(**options), example, target)
        if goal is not None:
            options |= {"sparsity": goal.sparsity, "costs": goal.costs}
        return self.soft_mask(**options), goal

    def plan(self, task: Task, example: Any) -> Plan | None:
        """The groups of channels that can be cut; None where the model cannot be followed."""
        try:
            return deploy.plan(task.model, example)
        except Exception as error:  # following a user's graph may raise anything; a coarser mask serves
            warnings.warn(
                f"the model's graph cannot be followed ({error}): channels are masked layer by layer, "
                "and shrink may have to keep some of them.",
                stacklevel=2,
            )
            return None

    def coupled(self, plan: Plan) -> dict[str, Any]:
        """Gates over whole coupled channels."""
        groups = groups_of(
            plan,
            lambda members: (
                any(matches(p, self.where) for p in members)
                and not any(matches(p, self.skip or "") for p in members)
            ),
        )
        if not groups:
            raise TorchliftError(f"no channels that {self.where!r} picks can be removed from this model.")
        return {"where": "*", "granularity": groups, "skip": None}


def warned_of_extremes(lifted: Problem, s_init: float) -> Problem:
    """Say which knob to turn where nothing, or everything, was dropped; leave no layer without a weight."""
    achieved = closed(lifted)
    knobs = {
        "no weight": "lower s_init, raise strength, train longer, or set sparsity=",
        "every weight": "raise s_init, lower strength, train with SGD, or set sparsity=",
    }
    for what, far in (("no weight", achieved < 0.001), ("every weight", achieved > 0.999)):
        if far:
            warnings.warn(f"{what} was dropped (s_init={s_init}): {knobs[what]}.", stacklevel=3)
    with warnings.catch_warnings():
        if achieved > 0.999:
            warnings.simplefilter("ignore")
        return with_one_open(lifted)
