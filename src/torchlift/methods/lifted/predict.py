"""Two prediction rules: the forward pass, and the lifted problem, output free (Askari et al. 2018)."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from torchlift.convex.activations import Activation
from torchlift.errors import TorchliftError
from torchlift.loss import evaluating
from torchlift.methods.lifted.data import checked, like_model
from torchlift.methods.lifted.network import Network
from torchlift.methods.lifted.solvers.joint import joint_x

_CHUNK = 512


@torch.no_grad()
def predict(
    model: nn.Module,
    x: Tensor,
    rule: Literal["forward", "lifted"] = "forward",
    *,
    mus: Sequence[float] | float = 1.0,
    loss: str = "mse",
) -> Tensor:
    """argmin over y and u of loss(y, v_{L+1}) + Σ_l μ_l‖u_l − v_l‖², u_l in dom σ_l (``rule="lifted"``).

    With loss "mse" that is v_{L+1} at the joint least-squares states; with "cross_entropy" it returns class
    scores, minus the least energy with each class as the label (n × classes, higher is better). With Bregman
    penalties both rules are the forward pass, so the lifted rule is that of the classical penalty.
    """
    x = like_model(model, checked(torch.as_tensor(x), torch.zeros(len(x)))[0])
    if rule == "forward":
        with evaluating(model):
            return model(x)
    if rule != "lifted":
        raise TorchliftError(f"lifted.predict: no rule {rule!r}; known: forward, lifted")
    network = Network.of(model, "classical", mus, loss)
    network.check(x)
    if not all(layer.flat for layer in network.layers):
        raise TorchliftError(
            "lifted.predict: rule 'lifted' solves dense networks; this one has convolutions or pooling"
        )
    weights, biases = [n.weight for n in network.layers], [n.theta[:, -1] for n in network.layers]
    acts = [p.activation for p in network.penalties[:-1]]
    solve = _regress if loss == "mse" else _classify
    outputs = [solve(weights, biases, batch.flatten(1), network.mus[:-1], acts) for batch in x.split(_CHUNK)]
    return torch.cat(outputs)


def _regress(
    weights: list[Tensor], biases: list[Tensor], x: Tensor, mus: list[float], acts: list[Activation]
) -> Tensor:
    below = joint_x(weights, biases, x, None, mus, activation=acts)[-1] if mus else x
    return below @ weights[-1].mT + biases[-1]


def _classify(
    weights: list[Tensor], biases: list[Tensor], x: Tensor, mus: list[float], acts: list[Activation]
) -> Tensor:
    scores: list[Tensor] = []
    for label in range(len(biases[-1])):
        y = torch.full((len(x),), label, device=x.device)
        states = joint_x(weights, biases, x, y, mus, "cross_entropy", activation=acts) if mus else []
        scores.append(-_energy(weights, biases, [x, *states], mus, label))
    return torch.stack(scores, 1)


def _energy(
    weights: list[Tensor], biases: list[Tensor], states: list[Tensor], mus: list[float], label: int
) -> Tensor:
    """Per sample: −log softmax(v_{L+1})_label + Σ_l μ_l‖u_l − v_l‖²."""
    total = -torch.log_softmax(states[-1] @ weights[-1].mT + biases[-1], 1)[:, label]
    for i, mu in enumerate(mus):
        gap = states[i + 1] - states[i] @ weights[i].mT - biases[i]
        total = total + mu * gap.square().sum(1)
    return total
