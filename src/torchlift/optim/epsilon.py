"""Adam with growing ε: w ← w − α_t·m̂_t/(√v̂_t + ε_t) with ε_t = ε·T^p₁·t^p₂, which converges like SGD.

Savarese, "Principled Approximation Methods", Theorem 6.2 and Corollary 6.1: any p₁ + p₂ ≥ ½ together with
α_t proportional to ε_t/√T gives the rate O(1/√T).
"""

from collections.abc import Sequence

from torch import Tensor
from torch.optim.optimizer import ParamsT

from .blocks import TensorBlock
from .moments import MomentOptimizer, ParamGroup, correction, decoupled_decay, direct, plus_number


class AdamEps(MomentOptimizer):
    """Adam that loses its adaptivity on schedule; ``power=0`` with ``scale_lr=False`` is Adam.

    ``power`` is p₂; ``horizon`` is the number of steps T with its exponent ``horizon_power``, p₁. With
    ``scale_lr`` the rate is α_t = lr·ε_t, as the corollary asks: in the limit of large ε_t a step of SGD with
    rate ``lr``, which should be of order 1/√T.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1.0,
        weight_decay: float = 0.0,
        *,
        power: float = 0.5,
        horizon: int = 1,
        horizon_power: float = 0.0,
        scale_lr: bool = True,
        decoupled: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        if power < 0 or horizon_power < 0 or horizon < 1:
            raise ValueError(
                f"AdamEps: power={power}, horizon={horizon}, horizon_power={horizon_power} would let ε fall; "
                "powers of at least 0 and a horizon of at least 1 work"
            )
        options = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "power": power,
            "horizon": horizon, "horizon_power": horizon_power, "scale_lr": scale_lr, "decoupled": decoupled,
            "foreach": foreach, "maximize": maximize, "capturable": capturable,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, options)

    def advance(self, group: ParamGroup, blocks: Sequence[TensorBlock]) -> None:
        """One step of Adam with the ε and the α of this step."""
        beta1, beta2 = group["betas"]
        for block in blocks:
            eps = epsilon_at(block.step, group)
            lr = group["lr"] * eps if group["scale_lr"] else group["lr"]
            direct(block, group)
            block.accumulate_first(beta1)
            block.accumulate_second(beta2)
            block.shrink(lr * decoupled_decay(group))
            root, now = block.second_root(skip_dead=False), correction(beta2, block.step) ** 0.5
            block.move(plus_number(root, eps * now, group), lr * now / correction(beta1, block.step))


def epsilon_at(step: float | Tensor, group: ParamGroup) -> float | Tensor:
    """ε_t = ε·T^p₁·t^p₂ (Corollary 6.1)."""
    return group["eps"] * group["horizon"] ** group["horizon_power"] * step ** group["power"]
