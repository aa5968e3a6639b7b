"""Every inserted layer adds its parameters as zero eigenvalues of the Hessian, at critical points.

python benchmarks/depth_degeneracy.py --seeds 5 --out benchmarks/results/depth_degeneracy.json

Bai et al. (2024), Figure 5: a network of two hidden neurons is brought to a critical point, then one and two
layers of two neurons are inserted: six parameters each, so six more zero eigenvalues each, and the same
positive and negative ones. The two neurons are tanh, since at the kinks of the paper's ReLU training never
comes to rest; the inserted ones are ReLU. From where gradient descent has brought it, the weights are moved
to the nearest zero of the gradient (Levenberg and Marquardt on it, in float64); both points that reach 1e-9
and points that reach the paper's level of 1e-4 are counted. Beside it the same at the initial weights.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import torchlift as tl
from torchlift.core import Task, chain
from torchlift.lifts import CriticalLayer

Pair = tuple[Tensor, Tensor]


def curve() -> Pair:
    """One variable: a network of three tanh neurons, so that the best of two neurons is finite."""
    x = torch.linspace(-2, 2, 40, dtype=torch.float64).unsqueeze(1)
    return x, torch.tanh(2 * x + 1) - 1.5 * torch.tanh(x) + torch.tanh(3 * x - 1.5)


def flowers() -> Pair:
    """Iris with one-hot targets."""
    x, y = tl.data.iris().train
    return x.double(), nn.functional.one_hot(y, 3).double()


def descend(task: Task, batch: Pair, steps: int = 8000, lr: float = 0.05) -> None:
    """Gradient descent to the neighbourhood of a critical point."""
    optimizer = torch.optim.SGD(task.parameters(), lr=lr, momentum=0.9)
    for _ in range(steps):
        task(batch).backward()
        optimizer.step()
        optimizer.zero_grad()


def slopes(task: Task, batch: Pair) -> tuple[Tensor, Tensor]:
    """Gradient and Hessian."""
    parameters = list(task.parameters())
    g = torch.cat([s.flatten() for s in torch.autograd.grad(task(batch), parameters, create_graph=True)])
    rows = [torch.autograd.grad(e, parameters, retain_graph=True, materialize_grads=True) for e in g]
    return g.detach(), torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])


def settle(task: Task, batch: Pair, steps: int = 200) -> float:
    """(H² + τ I) d = −H g, τ by success: a zero of the gradient; its largest entry there."""
    parameters = list(task.parameters())
    g, hessian = slopes(task, batch)
    damping = 1e-3
    for _ in range(steps):
        if float(g.abs().max()) < 1e-14 or damping > 1e8:
            break
        eye = torch.eye(len(g), dtype=g.dtype)
        step = torch.linalg.solve(hessian @ hessian + damping * eye, -hessian @ g)
        old = nn.utils.parameters_to_vector(parameters).detach()
        nn.utils.vector_to_parameters(old + step, parameters)
        new, curved = slopes(task, batch)
        if float(new.norm()) < float(g.norm()):
            g, hessian, damping = new, curved, damping / 5
        else:
            nn.utils.vector_to_parameters(old, parameters)
            damping *= 5
    return float(g.abs().max())


def signatures(task: Task, batch: Pair, after: str, similarities: int) -> list[list[int]]:
    """(positive, negative, zero) with no, one and two inserted layers; the shallow network's line for all."""
    one = CriticalLayer(after, batch[0], width=2, activation=nn.ReLU())
    two = chain(one, CriticalLayer(f"{after}.outer", batch[0], width=2, activation=nn.ReLU()))
    shallow = tl.analyze.spectrum(task, batch, similarities=similarities)
    options = {"similarities": similarities, "tolerance": shallow.boundary}
    deep = [list(tl.analyze.inertia(lift.lift(task), batch, **options)) for lift in (one, two)]
    return [list(shallow.inertia), *deep]


def run(name: str, data: Pair, seed: int, similarities: int) -> dict[str, Any]:
    """One seed: at the initial weights and at a critical point."""
    torch.manual_seed(seed)
    model = tl.models.MLP(data[0].shape[1], 2, data[1].shape[1], activation=nn.Tanh).double()
    task = Task(model, "mse")
    before = signatures(task, data, "head", similarities)
    descend(task, data)
    size = settle(task, data)
    return {
        "data": name,
        "seed": seed,
        "gradient": size,
        "loss": task(data).item(),
        "critical": signatures(task, data, "head", similarities),
        "initial": before,
    }


def kept(signs: list[list[int]], extra: int) -> bool:
    """Whether only zeros were added, ``extra`` a layer."""
    return all(s == [signs[0][0], signs[0][1], signs[0][2] + k * extra] for k, s in enumerate(signs))


def main() -> None:
    """Run all seeds, print and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="not needed: Iris comes with scikit-learn")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="1: 100 random similarity transformations")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/depth_degeneracy.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for name, make in (("curve", curve), ("iris", flowers)):
        for seed in range(given.seeds):
            rows.append(run(name, make(), seed, int(100 * given.scale)))
            print(rows[-1], flush=True)
    critical = [row for row in rows if row["gradient"] < 1e-9]
    nearly = [row for row in rows if row["gradient"] < 1e-4]
    record = {
        "title": "Six more zero eigenvalues for each inserted layer of two neurons",
        "scale": f"width 2, {int(100 * given.scale)} similarity transformations",
        "seeds": list(range(given.seeds)),
        "command": f"python benchmarks/depth_degeneracy.py --seeds {given.seeds} --scale {given.scale:g}",
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "critical points": len(critical),
        "kept at critical points": sum(kept(row["critical"], 6) for row in critical),
        "nearly critical points": len(nearly),
        "kept at nearly critical points": sum(kept(row["critical"], 6) for row in nearly),
        "kept at initial points": sum(kept(row["initial"], 6) for row in rows),
        "rows": rows,
    }
    given.out.write_text(json.dumps(record, indent=1) + "\n")
    print({key: value for key, value in record.items() if "points" in key})


if __name__ == "__main__":
    main()
