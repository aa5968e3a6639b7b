"""A run that is killed again and again: ``python lives.py FOLDER RECIPE KILLS SEED``.

Prints ``kills finished`` where every finished run ended with the reference's weights, bit for bit; exits 1
otherwise. RECIPE ``every`` is one of each there is, one line each. Lives are forked from one process that has
torch loaded, so that a life costs milliseconds.
"""

import contextlib
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # torch loads it with the first optimizer: once, before the first life
from safetensors.torch import load_file
from torch import nn

import torchlift as tl
from torchlift import deploy, report  # noqa: F401  (loaded once, before the first life)

sys.path.insert(0, str(Path(__file__).parents[1]))
import every_recipe

EVERY = every_recipe.one_each()

RECIPES = {
    "plain": tl.recipes.Plain(),
    "two cycles": tl.recipes.NeuralLifting("2", width=8, cycles=2, mix=0.5),
    "mask then tune": tl.recipes.Chain(
        {"mask": tl.lifts.SoftMask(strength=1e-4), "tune": tl.recipes.Plain()}
    ),
    "bits": tl.recipes.Smol(bits=3),
    "contrastive": tl.recipes.Lifted(),
    "contrastive sweeps": tl.recipes.Lifted("contrastive", options={"sweeps": 1}),
    "isgm": tl.recipes.Lifted("isgm", options={"schedule": "sqrt"}),
    "bcd": tl.recipes.Lifted("bcd", options={"update": "linearized", "growth": 1.5}),
    "bcd in one batch": tl.recipes.Lifted("bcd", options={"update": "accelerated", "learn_slopes": True}),
    "splitting": tl.recipes.Lifted("splitting", options={"multiplier": True}),
}


def life(folder: Path, recipe: str) -> None:
    torch.set_num_threads(1)
    if recipe in EVERY:
        settings = {"epochs": 3, "batch_size": 32, "out": folder, "resume": True, "save_every": 0.0}
        data = every_recipe.data(1, 96)
        tl.fit(every_recipe.model(), data, data, recipe=EVERY[recipe], progress=False, **settings)
    else:
        long_life(folder, recipe)


def long_life(folder: Path, recipe: str) -> None:
    torch.manual_seed(0)
    lifted = isinstance(RECIPES[recipe], tl.recipes.Lifted)
    act = nn.LeakyReLU(0.1) if recipe == "bcd in one batch" else nn.ReLU()
    between = (act, nn.ReLU()) if lifted else (nn.BatchNorm1d(16), nn.Dropout(0.2))
    model = nn.Sequential(nn.Linear(5, 16), between[0], nn.Linear(16, 8), between[1], nn.Linear(8, 3))
    x = torch.randn(96, 5)
    data = (x, (x.sum(1) > 0).long() + (x[:, 0] > 0).long())
    squares = recipe == "splitting"
    if squares:
        data = (x, nn.functional.one_hot(data[1], 3).float())
    tl.fit(
        model,
        data,
        data,
        recipe=RECIPES[recipe],
        loss="mse" if squares else "cross_entropy",
        epochs=6,
        batch_size=96 if recipe in ("bcd in one batch", "splitting") else 16,
        schedule="cosine",
        keep="best",
        out=folder,
        resume=True,
        save_every=0.0,
    )


def born(folder: Path, recipe: str) -> int:
    child = os.fork()
    if child == 0:
        life(folder, recipe)
        os._exit(0)
    return child


def dies(child: int, after: float) -> bool:
    """Whether it had to be killed; False where it had ended by itself."""
    deadline = time.monotonic() + after
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0, f"a life ended with status {status}"
            return False
        time.sleep(0.001)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return status != 0


def same(one: Path, two: Path) -> bool:
    a, b = load_file(one / "model.safetensors"), load_file(two / "model.safetensors")
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def main(root: Path, recipe: str, kills: int, seed: int) -> int:
    chance = random.Random(seed)
    started = time.monotonic()
    assert not dies(born(root / "reference", recipe), 600.0)
    length = time.monotonic() - started
    killed = finished = 0
    while killed < kills or not finished:
        target = root / f"run{finished}"
        if dies(born(target, recipe), chance.uniform(0.0, length) if killed < kills else 600.0):
            killed += 1
        else:
            finished += 1
            if not same(root / "reference", target):
                print(f"run {finished} differs after {killed} kills")
                return 1
            shutil.rmtree(target)
    print(killed, finished)
    return 0


if __name__ == "__main__":
    folder, selection, kills, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    names = EVERY if selection == "every" else [selection]
    sys.exit(max(main(folder / name, name, kills, seed) for name in names))
