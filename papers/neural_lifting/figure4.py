"""Neural lifting, Figure 4 and appendix C: a convolutional lifter of 9,264 parameters, two cycles."""

from pathlib import Path

from papers.common.arms import Entry, Row
from papers.neural_lifting import lenet
from papers.neural_lifting.figure2 import traced
from torchlift import Arm
from torchlift.recipes import NeuralLifting
from torchlift.train.until import Plateau

RATES = (0.05, 0.007, 0.0016)
CYCLES = 2


def run(out: Path, data: str | None = None, seeds: int | None = None, scale: float | None = None) -> Row:
    """Two cycles of Algorithm 2 per seed; ``scale`` 1 is 249 epochs, 25 unless given."""
    epochs = lenet.FAST_EPOCHS if scale is None else lenet.PAPER_EPOCHS * scale
    rule = Plateau(lenet.PATIENCE, cap=epochs / (3 * CYCLES))
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
    arm = Entry("conv lifter", lenet.paper_model, Arm(recipe, **lenet.PAPER_SETTINGS), 69.95)
    title, source = "Figure 4: a convolutional lifter", "appendix C, Figure 4"
    return traced(title, source, arm, epochs, out / "figure4", data, seeds)
