"""Delayed Adam: w ← w − α·m_t/(√v_{t−1} + ε), rates that do not know the gradient they are applied to.

Savarese, "Principled Approximation Methods", Algorithm 6 and Theorem 6.3.
"""

from collections.abc import Sequence

from torch import Tensor
from torch.optim.optimizer import ParamsT

from .blocks import TensorBlock
from .moments import MomentOptimizer, ParamGroup, correction, decoupled_decay, direct, plus_number


class DelayedAdam(MomentOptimizer):
    """Adam with its second moment one step late, which removes the correlation that can make Adam fail.

    ``bias_correction=True``: with Adam's corrections, w ← w − α·m̂_t/(√v̂_{t−1} + ε), and an entry's first
    gradient only fills its moments. ``False`` is Algorithm 6 to the letter; note that v_0 = 0 makes its first
    step α/ε times the gradient.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        decoupled: bool = False,
        bias_correction: bool = True,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "decoupled": decoupled,
            "bias_correction": bias_correction, "foreach": foreach, "maximize": maximize,
            "capturable": capturable, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, options)

    def advance(self, group: ParamGroup, blocks: Sequence[TensorBlock]) -> None:
        """One step of Algorithm 6, with or without bias corrections."""
        beta1, beta2 = group["betas"]
        for block in blocks:
            direct(block, group)
            block.accumulate_first(beta1)
            block.shrink(group["lr"] * decoupled_decay(group))
            block.move(*delayed_rates(block, group))
            block.accumulate_second(beta2)


def delayed_rates(block: TensorBlock, group: ParamGroup) -> tuple[Tensor, float | Tensor]:
    """√v_{t−1} + ε and α; with bias corrections, and then infinite where there is no second moment yet."""
    (beta1, beta2), eps, lr = group["betas"], group["eps"], group["lr"]
    corrected = group["bias_correction"]
    root = block.second_root(skip_dead=corrected)
    if not corrected:
        return plus_number(root, eps, group), lr
    before = correction(beta2, block.step - 1) ** 0.5
    return plus_number(root, eps * before, group), lr * before / correction(beta1, block.step)
