"""The rules as the sources print them, one scalar formula at a time, for comparison."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class PublishedAvaGrad:
    """The authors' program: per-parameter t, no move at t = 1, a norm that lags by one step, γ per group."""

    def __init__(self, groups: list[dict]) -> None:
        self.groups = groups
        self.state: dict[Tensor, dict] = {}

    @torch.no_grad()
    def step(self) -> None:
        for group in self.groups:
            beta1, beta2 = group["betas"]
            total, count = 0.0, 0
            for w in group["params"]:
                if w.grad is None:
                    continue
                s = self.state.setdefault(w, {"t": 0, "m": torch.zeros_like(w), "v": torch.zeros_like(w)})
                s["t"] += 1
                t, g = s["t"], w.grad.clone()
                if not group["decoupled"]:
                    g += group["weight_decay"] * w
                s["m"] = beta1 * s["m"] + (1 - beta1) * g
                if t > 1:
                    if group["decoupled"]:
                        w.mul_(1 - group["lr"] * group["weight_decay"])
                    denominator = s["v"].sqrt() / math.sqrt(1 - beta2 ** (t - 1)) + group["eps"]
                    w.sub_(group["lr"] * group["gamma"] * s["m"] / ((1 - beta1**t) * denominator))
                rate = 1 / (s["v"].sqrt() / math.sqrt(1 - beta2**t) + group["eps"])
                total, count = total + rate.square().sum(), count + rate.numel()
                s["v"] = beta2 * s["v"] + (1 - beta2) * g * g
            if count:
                group["gamma"] = 1 / (total / count).sqrt()


class ThesisAvaGrad(PublishedAvaGrad):
    """Algorithm 7, the norm taken over each group."""

    @torch.no_grad()
    def step(self) -> None:
        for group in self.groups:
            beta1, beta2 = group["betas"]
            present = [w for w in group["params"] if w.grad is not None]
            for w in present:
                self.state.setdefault(w, {"m": torch.zeros_like(w), "v": torch.zeros_like(w)})
            rates = {w: 1 / (self.state[w]["v"].sqrt() + group["eps"]) for w in present}
            if not present:
                continue
            d = sum(rate.numel() for rate in rates.values())
            norm = torch.cat([rate.flatten() for rate in rates.values()]).norm() / math.sqrt(d)
            for w, rate in rates.items():
                s, g = self.state[w], w.grad.clone()
                if group["decoupled"]:
                    w.mul_(1 - group["lr"] * group["weight_decay"])
                else:
                    g += group["weight_decay"] * w
                s["m"] = beta1 * s["m"] + (1 - beta1) * g
                w.sub_(group["lr"] * rate / norm * s["m"])
                s["v"] = beta2 * s["v"] + (1 - beta2) * g * g


RULES = {"published": PublishedAvaGrad, "thesis": ThesisAvaGrad}
