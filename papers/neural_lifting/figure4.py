"""Neural lifting, Figure 4 and appendix C: a convolutional lifter of 9,264 parameters, two cycles."""

from functools import partial
from pathlib import Path

from papers.common.arms import Entry, Row, selected_arms, spread
from papers.common.protocol import few
from papers.neural_lifting import lenet
from papers.neural_lifting.figure2 import dense, one_seed, traced
from torchlift.data import load
from torchlift.experiments.executors import run_all
from torchlift.recipes import NeuralLifting
from torchlift.train.until import Plateau

RATES = (0.05, 0.007, 0.0016)
CYCLES = 2


def run(
    out: Path,
    data: str | None = None,
    seeds: int | None = None,
    epochs: float | None = None,
    images: int | None = None,
    device: str | None = None,
    arms: str | None = None,
) -> Row:
    """Two cycles of Algorithm 2 per seed, 249 epochs unless given; as control, Table 2's dense lifter."""
    length = epochs or lenet.PAPER_EPOCHS
    patience = max(2, round(lenet.PATIENCE * length / lenet.PAPER_EPOCHS))
    rule = Plateau(patience, cap=length / (3 * CYCLES))
    recipe = NeuralLifting(
        "trunk.conv2",
        kind="conv",
        width=32,
        init="xavier",
        sparsity=0.99,
        lrs=RATES,
        until=rule,
        cycles=CYCLES,
    )
    arm = Entry("conv lifter", lenet.paper_model, lenet.paper_arm(lenet.LIFTING, recipe), 69.95)
    title, source = "Figure 4: a convolutional lifter", "appendix C, Figure 4"
    splits = few(load("cifar10", data), images)
    size = f"{length:g}-{len(splits.train[0])}"
    result = traced(title, source, arm, length, out / f"figure4-{size}", splits, seeds, device)
    if lenet.LIFTING not in selected_arms((arm.name, lenet.LIFTING), arms):
        return result | {"partial": "without the dense lifter"}
    control = partial(
        one_seed, dense(length)[0], splits=splits, epochs=length, out=out / f"table2-{size}", device=device
    )
    accuracy = spread([100 * one.test for one in run_all(control, result["seeds"])])
    finding = f"{result['finding'].rstrip('.')}; the dense lifter has {accuracy['mean']:.2f} %."
    return result | {"finding": finding, "test accuracy, dense lifter": accuracy}
