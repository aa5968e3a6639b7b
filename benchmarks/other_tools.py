"""Other tools beside torchlift: one trained network, made smaller by each, equal fine-tuning.

    pip install torchao     # not among the extras: transformers imports it wherever it is installed
    python benchmarks/other_tools.py --data FOLDER --out benchmarks/results/other_tools.json

Torch-Pruning, torch.nn.utils.prune, torchao. A network is trained once on CIFAR-10 (a subset; crops and
flips), then every arm makes it smaller and trains the same number of epochs with the same optimiser (AdamW,
cosine). Per arm: test accuracy of what is delivered; bytes of the file its tool writes (torch.save of the
state dict; our packed file); latency of batches of 1 and 32 relative to the dense network (medians of
paired, interleaved calls, one thread); how far the delivered network is from what the tool promises (cut
channels set to zero; masks multiplied in; for rounding there is nothing to check). It goes on where it
stopped: every finished (model, seed, arm) is in the JSON.
"""

import argparse
import copy
import functools
import io
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import prune as masks

import torchlift as tl
from shrink_table import theirs

RATE, DECAY = 3e-3, 1e-2


def resnet20() -> nn.Module:
    """ResNet-20 of the CIFAR papers."""
    return tl.models.resnet(20)


def mobilenet() -> nn.Module:
    """MobileNetV2 at a quarter of its width, on 32 × 32 images."""
    import transformers

    config = transformers.MobileNetV2Config(image_size=32, depth_multiplier=0.25, num_labels=10)
    return transformers.MobileNetV2ForImageClassification(config)


def vit() -> nn.Module:
    """A ViT of six blocks of 96 features."""
    import transformers

    config = transformers.ViTConfig(
        hidden_size=96, num_hidden_layers=6, num_attention_heads=4, intermediate_size=384, image_size=32,
        patch_size=4, num_labels=10,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


MODELS: dict[str, Callable[[], nn.Module]] = {"ResNet-20": resnet20, "MobileNetV2": mobilenet, "ViT": vit}


class Bench:
    """The data, and how everything here is trained."""

    def __init__(self, folder: str, images: int, epochs: int, tuning: int, seed: int) -> None:
        parts = tl.data.load("cifar10", folder, 0)
        self.train = tuple(part[:images] for part in parts.train)
        self.test = tuple(part[:2000] for part in parts.test)
        self.epochs, self.tuning, self.seed = epochs, tuning, seed
        self.example = self.test[0][:2]

    def fit(self, model: nn.Module, epochs: int, recipe: Any = None, rate: float = RATE) -> nn.Module:
        """The one way of training."""
        result = tl.fit(
            model, self.train, recipe=recipe, epochs=epochs, seed=self.seed, schedule="cosine",
            batch_size=128,
            optimizer=functools.partial(torch.optim.AdamW, lr=rate, weight_decay=DECAY), equal_cost=True,
            augment=tl.data.crop_flip, progress=False,
        )  # fmt: skip
        return result.model.eval()

    def tune(self, model: nn.Module, recipe: Any = None) -> nn.Module:
        """Fine-tuning: the same for all arms."""
        return self.fit(model, self.tuning, recipe, RATE / 3)

    @torch.no_grad()
    def accuracy(self, model: nn.Module) -> float:
        """On the test images."""
        right = 0
        for start in range(0, len(self.test[0]), 250):
            x, y = (part[start : start + 250] for part in self.test)
            right += int((output(model(x)).argmax(1) == y).sum())
        return right / len(self.test[0])


def output(result: Any) -> Tensor:
    """Logits, of a tensor or of a result of transformers."""
    return result if isinstance(result, Tensor) else result.logits


def saved(model: nn.Module) -> int:
    """Bytes of torch.save(state_dict)."""
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    return buffer.tell()


def packed(model: nn.Module) -> int:
    """Bytes of our file, which loads to the same outputs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tl"
        tl.deploy.save(model, path)
        return path.stat().st_size


@torch.no_grad()
def apart(a: nn.Module, b: nn.Module, x: Tensor) -> float:
    """The largest difference of two outputs relative to the largest output."""
    one, other = output(a(x)).double(), output(b(x)).double()
    return float((one - other).abs().max() / other.abs().max())


def cut_by_them(dense: nn.Module, bench: Bench) -> dict[str, Any]:
    """Half of the channels, by Torch-Pruning."""
    model = bench.tune(theirs(dense, bench.example))
    return {"model": model, "bytes": saved(model), "difference": None}


def cut_by_us(dense: nn.Module, bench: Bench) -> dict[str, Any]:
    """Half of the channels, by torchlift."""
    from shrink_table import masked_by_us

    small = tl.deploy.prune(dense, bench.example, 0.5)
    gap = apart(small, masked_by_us(dense, bench.example), bench.example)
    model = bench.tune(small)
    return {"model": model, "bytes": packed(model), "difference": gap}


def matrices(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """Weights that both tools mask."""
    return [(part, "weight") for part in model.modules() if isinstance(part, nn.Conv2d | nn.Linear)]


def masked_by_torch(dense: nn.Module, bench: Bench) -> dict[str, Any]:
    """90 % of the weights, by torch.nn.utils.prune, fine-tuned under its masks."""
    model = copy.deepcopy(dense)
    masks.global_unstructured(matrices(model), masks.L1Unstructured, amount=0.9)
    torch.manual_seed(bench.seed)
    loop(model, bench)
    with torch.no_grad():
        before = output(model(bench.example)).double()
        for part, name in matrices(model):
            masks.remove(part, name)
        gap = float((output(model(bench.example)).double() - before).abs().max() / before.abs().max())
    return {"model": model, "bytes": saved(model), "difference": gap}


def loop(model: nn.Module, bench: Bench) -> None:
    """The same steps as :meth:`Bench.tune`, in torch's own words: masked modules are no plain model."""
    x, y = bench.train
    steps = bench.tuning * -(-len(x) // 128)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE / 3, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    crop, draw = tl.data.crop_flip, torch.Generator().manual_seed(bench.seed)
    model.train()
    for _ in range(bench.tuning):
        for rows in torch.randperm(len(x), generator=draw).split(128):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(output(model(crop(x[rows], draw))), y[rows])
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()


def masked_by_us_90(dense: nn.Module, bench: Bench) -> dict[str, Any]:
    """90 % of the same weights, by torchlift, held while fine-tuning."""
    model = copy.deepcopy(dense)
    names = {id(part.weight) for part, _ in matrices(model)}
    where = [name for name, p in model.named_parameters() if id(p) in names]
    flat = torch.cat([model.get_parameter(name).detach().abs().flatten() for name in where])
    cut = flat.kthvalue(round(0.9 * flat.numel())).values
    kept = {name: model.get_parameter(name).detach().abs() > cut for name in where}
    before = tl.deploy.mask_weights(model, masks=kept)
    model = bench.tune(before)
    zeros = max(float((model.get_parameter(n).detach()[~kept[n]]).abs().sum()) for n in where)
    return {"model": model, "bytes": packed(model), "difference": zeros}


def rounded_by_them(dense: nn.Module, bench: Bench) -> dict[str, Any]:
    """torchao's int8 weights, after the same fine-tuning."""
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = bench.tune(dense)
    quantize_(model, Int8WeightOnlyConfig())
    return {"model": model, "bytes": saved(model), "difference": None}


def rounded_by_us(dense: nn.Module, bench: Bench) -> dict[str, Any]:
    """Bits learned per weight, to the eighth part of float32."""
    full = sum(4 * p.numel() for p in dense.parameters())
    model = bench.tune(dense, tl.recipes.Smol(bytes=full // 8))
    return {"model": model, "bytes": packed(model), "difference": None}


def untouched(dense: nn.Module, bench: Bench) -> dict[str, Any]:
    """The dense network with the same fine-tuning."""
    model = bench.tune(dense)
    return {"model": model, "bytes": saved(model), "difference": None}


ARMS: dict[str, Callable[[nn.Module, Bench], dict[str, Any]]] = {
    "dense": untouched,
    "Torch-Pruning, half the channels": cut_by_them,
    "torchlift prune, half the channels": cut_by_us,
    "nn.utils.prune, 90 % zeros": masked_by_torch,
    "torchlift mask_weights, 90 % zeros": masked_by_us_90,
    "torchao, int8 weights": rounded_by_them,
    "torchlift Smol, an eighth": rounded_by_us,
}


@torch.no_grad()
def latency(model: nn.Module, dense: nn.Module, x: Tensor, rounds: int = 15) -> float:
    """The median ratio of paired calls."""
    ratios = list[float]()
    for _ in range(rounds):
        took = list[float]()
        for one in (model, dense):
            one(x)
            start = time.perf_counter()
            one(x)
            took.append(time.perf_counter() - start)
        ratios.append(took[0] / took[1])
    return statistics.median(ratios)


def row(arm: str, dense: nn.Module, bench: Bench) -> dict[str, Any]:
    """One arm's line; what a tool cannot do is its line."""
    try:
        found = ARMS[arm](copy.deepcopy(dense), bench)
    except Exception as error:  # any failure of a tool is its result here
        return {"failed": f"{type(error).__name__}: {error}"[:200]}
    model = found.pop("model")
    batches = {count: bench.test[0][:count] for count in (1, 32)}
    speed = {f"latency_{count}": latency(model, dense, x) for count, x in batches.items()}
    params = sum(p.numel() for p in model.parameters())
    return found | speed | {"accuracy": bench.accuracy(model), "parameters": params}


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=None)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "other_tools.json")
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--tuning", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    scale = {key: getattr(chosen, key) for key in ("images", "epochs", "tuning")}
    known = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    rows: dict[str, Any] = known["rows"] if known.get("scale") == scale else {}
    for name in chosen.models:
        for seed in range(chosen.seeds):
            bench = Bench(chosen.data, chosen.images, chosen.epochs, chosen.tuning, seed)
            if all(f"{name}/{seed}/{arm}" in rows for arm in ARMS):
                continue
            torch.manual_seed(seed)
            dense = bench.fit(MODELS[name](), bench.epochs)
            for arm in ARMS:
                key = f"{name}/{seed}/{arm}"
                if key not in rows:
                    rows[key] = row(arm, dense, bench)
                    about = "one thread, a machine with other work; CIFAR-10 subset, crops and flips"
                    told = {"what": __doc__.split("\n")[0], "scale": scale, "machine": about, "rows": rows}
                    chosen.out.write_text(json.dumps(told, indent=1))
                print(key, rows[key], flush=True)


if __name__ == "__main__":
    main()
