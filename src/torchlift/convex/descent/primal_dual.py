"""min F(x) + g(x) + h(Kx), F smooth, g and h by their prox: Condat 2013, Vũ 2013; F = 0 is PDHG."""

from torch import Tensor

from torchlift.convex.descent.stopping import Descent, Gap, Monitor, Smooth, Stopping
from torchlift.convex.functions.base import Function
from torchlift.convex.functions.norms import Zero
from torchlift.convex.operators.base import Operator


def condat_vu(
    smooth: Smooth,
    operator: Operator,
    function: Function,
    start: Tensor,
    *,
    constraint: Function | None = None,
    dual: Tensor | None = None,
    balance: float = 1.0,
    gap: Gap | None = None,
    stopping: Stopping | None = None,
) -> Descent:
    """x ← prox_τg(x − τ(∇F(x) + Kᵀq)), q ← prox_sh*(q + sK(2x − last)), with 1/τ − s‖K‖² ≥ L/2.

    s = balance·L/(2‖K‖²) and the largest τ that goes with it; ``dual`` starts q, from 0 if not given.
    """
    g = constraint or Zero()
    objective = lambda x: smooth.value(x) + g.fn(x) + function.fn(operator.A(x))
    monitor = Monitor(stopping or Stopping(), objective, gap)
    lipschitz, size = max(smooth.lipschitz, 1e-30), max(operator.norm(start) ** 2, 1e-30)
    s = balance * lipschitz / (2 * size)
    tau = 0.99 / (lipschitz / 2 + s * size)
    x, image = start, operator.A(start)
    q = image * 0 if dual is None else dual
    k = 0
    for k in range(1, monitor.stopping.max_iter + 1):
        last, last_image = x, image
        x = g.prox(x - tau * (smooth.gradient(x) + operator.A_adjoint(q)), tau)
        image = operator.A(x)
        q = function.prox_conjugate(q + s * (2 * image - last_image), s)
        if monitor.enough(k, x, last, q):
            break
    return monitor.result(x, k, q)
