"""Other tools beside torchlift: one trained network, made smaller by each, equal fine-tuning.

    pip install --target FOLDER --no-deps torchao    # apart: transformers imports it where it is installed
    PYTHONPATH=FOLDER python benchmarks/other_tools.py --data DATA

Torch-Pruning, torch.nn.utils.prune and torchao. A network is trained once on CIFAR-10 (a subset; crops and
flips); for every seed every arm makes it smaller and trains it for as many epochs with the same optimizer
(AdamW, cosine; other rows in the batches for every seed). Per arm: test accuracy of what is delivered; bytes
of the file its tool writes (torch.save of the state dict; our packed file), and of that file gzipped; time
of batches of 1 and 32 relative to the dense network (medians of paired, interleaved calls on one thread, in
seconds of the processor); "difference", the largest of the outputs relative to the largest output: of the
cut network from the dense one whose cut channels are zero, of the network without the masks from that with
them, of the rounded network from the one that was trained. What is finished is in the JSON and is not run
again, what was interrupted goes on from ``--work``; ``--page`` writes the table of docs/other-tools.md.
"""

import argparse
import copy
import functools
import gzip
import io
import itertools
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
from shrink_table import masked_by_us, theirs
from torchlift.errors import CheckpointError

RATE, DECAY, BATCH = 3e-3, 1e-2, 64
PAGE = Path(__file__).parents[1] / "docs" / "other-tools.md"


def resnet20() -> nn.Module:
    """ResNet-20 of the CIFAR papers."""
    return tl.models.resnet(20)


def mobilenet() -> nn.Module:
    """MobileNetV2 at a quarter of its width; on 32 × 32 images it strides by 16 in all."""
    import transformers

    config = transformers.MobileNetV2Config(
        image_size=32, depth_multiplier=0.25, num_labels=10, output_stride=16
    )
    return transformers.MobileNetV2ForImageClassification(config)


def vit() -> nn.Module:
    """A ViT of four blocks of 64 features."""
    import transformers

    config = transformers.ViTConfig(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=256, image_size=32,
        patch_size=4, num_labels=10,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


MODELS: dict[str, Callable[[], nn.Module]] = {"ResNet-20": resnet20, "MobileNetV2": mobilenet, "ViT": vit}


class Bench:
    """The data, and how everything here is trained."""

    def __init__(self, folder: str | None, work: Path, images: int, epochs: int, tuning: int) -> None:
        splits = tl.data.load("cifar10", folder, 0)
        self.train = tuple(tensor[:images] for tensor in splits.train)
        self.test = tuple(tensor[:2000] for tensor in splits.test)
        self.epochs, self.tuning, self.seed = epochs, tuning, 0
        self.work, self.name, self.make = work, "dense", resnet20
        self.example = self.test[0][:2]

    def fit(self, model: nn.Module, epochs: int, recipe: Any = None, rate: float = RATE) -> nn.Module:
        """The one way of training."""
        result = tl.fit(
            model, self.train, recipe=recipe, epochs=epochs, seed=self.seed, schedule="cosine",
            batch_size=BATCH, optimizer=functools.partial(torch.optim.AdamW, lr=rate, weight_decay=DECAY),
            equal_cost=True, augment=tl.data.crop_flip, progress=False,
            out=self.work / self.name, resume=True, save_every=20,
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
            x, y = (tensor[start : start + 250] for tensor in self.test)
            right += int((output(model(x)).argmax(1) == y).sum())
        return right / len(self.test[0])


def output(result: Any) -> Tensor:
    """Logits, of a tensor or of a result of transformers."""
    return result if isinstance(result, Tensor) else result.logits


def saved(model: nn.Module) -> bytes:
    """The file of torch.save(state_dict)."""
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    return buffer.getvalue()


def packed(model: nn.Module, bench: Bench) -> tuple[bytes, nn.Module]:
    """Our file, and the network it holds, read into a new instance of its class."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tl"
        tl.deploy.save(model, path)
        return path.read_bytes(), tl.deploy.load(path, into=bench.make()).eval()


@torch.no_grad()
def apart(a: nn.Module, b: nn.Module | Tensor, x: Tensor) -> float:
    """The largest difference of two outputs relative to the largest output."""
    one, other = output(a(x)), b if isinstance(b, Tensor) else output(b(x))
    return float((one - other).abs().max() / other.abs().max())


def cut_by_them(dense: nn.Module, bench: Bench) -> dict[str, Any]:
    """Half of the channels, by Torch-Pruning."""
    zeroed = copy.deepcopy(dense)
    small = theirs(dense, bench.example, functools.partial(zero, zeroed))
    gap = apart(small, zeroed, bench.example)
    model = bench.tune(small)
    return {"model": model, "file": saved(model), "difference": gap}


@torch.no_grad()
def zero(zeroed: nn.Module, pruner: Any, group: Any) -> None:
    """Set to zero, in a copy of the dense network, the channels of a group that is about to be cut."""
    modules, tensors = dict(zeroed.named_modules()), dict(zeroed.named_parameters())
    names = {id(module): name for name, module in pruner.model.named_modules()}
    names |= {id(tensor): name for name, tensor in pruner.model.named_parameters()}
    for step, rows in group:
        name, module = names.get(id(step.target.module)), step.target.module
        if name in tensors:
            tensors[name][..., rows] = 0
        elif name is not None and pruner.DG.is_out_channel_pruning_fn(step.handler):
            for tensor in modules[name].parameters(recurse=False):
                tensor[rows] = 0
            assert type(module) is type(modules[name])


def cut_by_us(dense: nn.Module, bench: Bench) -> dict[str, Any]:
    """Half of the channels, by torchlift."""
    small = tl.deploy.prune(dense, bench.example, 0.5)
    gap = apart(small, masked_by_us(dense, bench.example), bench.example)
    file, model = packed(bench.tune(small), bench)
    return {"model": model, "file": file, "difference": gap}


def matrices(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """Weights that both tools mask."""
    return [(module, "weight") for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)]


def masked_by_torch(dense: nn.Module, bench: Bench) -> dict[str, Any]:
    """90 % of the weights, by torch.nn.utils.prune, fine-tuned under its masks."""
    masks.global_unstructured(matrices(dense), masks.L1Unstructured, amount=0.9)
    loop(dense, bench)
    with torch.no_grad():
        before = output(dense(bench.example))
    for module, name in matrices(dense):
        masks.remove(module, name)
    return {"model": dense, "file": saved(dense), "difference": apart(dense, before, bench.example)}


def loop(model: nn.Module, bench: Bench) -> None:
    """The same steps as :meth:`Bench.tune`, in torch's own words: masked modules are no plain model."""
    x, y = bench.train
    steps = bench.tuning * -(-len(x) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE / 3, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    crop, draw = tl.data.crop_flip, torch.Generator().manual_seed(bench.seed)
    torch.manual_seed(bench.seed)
    model.train()
    for _ in range(bench.tuning):
        for rows in torch.randperm(len(x), generator=draw).split(BATCH):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(output(model(crop(x[rows], draw))), y[rows])
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()


def masked_by_us_90(dense: nn.Module, bench: Bench) -> dict[str, Any]:
    """90 % of the same weights, by torchlift, held while fine-tuning."""
    own = {id(module.weight) for module, _ in matrices(dense)}
    weights = {name: p.detach().abs() for name, p in dense.named_parameters() if id(p) in own}
    flat = torch.cat([weight.flatten() for weight in weights.values()])
    cut = flat.kthvalue(round(0.9 * flat.numel())).values
    kept = {name: weight > cut for name, weight in weights.items()}
    tuned = bench.tune(tl.deploy.mask_weights(dense, masks=kept))
    file, model = packed(tuned, bench)
    assert all(bool((model.get_parameter(name)[~mask] == 0).all()) for name, mask in kept.items())
    return {"model": model, "file": file, "difference": apart(model, tuned, bench.example)}


def rounded_by_them(dense: nn.Module, bench: Bench) -> dict[str, Any]:
    """torchao's int8 weights (linear layers), after the same fine-tuning."""
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = bench.tune(dense)
    rounded = copy.deepcopy(model)
    quantize_(rounded, Int8WeightOnlyConfig())
    return {"model": rounded, "file": saved(rounded), "difference": apart(rounded, model, bench.example)}


def rounded_by_us(dense: nn.Module, bench: Bench) -> dict[str, Any]:
    """Bits learned per weight, four on average, while fine-tuning."""
    tuned = bench.tune(dense, tl.recipes.Smol(bits=4))
    file, model = packed(tuned, bench)
    return {"model": model, "file": file, "difference": apart(model, tuned, bench.example)}


def cut_and_rounded(dense: nn.Module, bench: Bench) -> dict[str, Any]:
    """Half of the channels, then bits for what is left."""
    return rounded_by_us(tl.deploy.prune(dense, bench.example, 0.5), bench)


def untouched(dense: nn.Module, bench: Bench) -> dict[str, Any]:
    """The dense network with the same fine-tuning."""
    model = bench.tune(dense)
    return {"model": model, "file": saved(model), "difference": 0.0}


ARMS: dict[str, Callable[[nn.Module, Bench], dict[str, Any]]] = {
    "dense": untouched,
    "Torch-Pruning, half the channels": cut_by_them,
    "torchlift `prune`, half the channels": cut_by_us,
    "`nn.utils.prune`, 90 % zeros": masked_by_torch,
    "torchlift `mask_weights`, 90 % zeros": masked_by_us_90,
    "torchao, int8 weights": rounded_by_them,
    "torchlift `Smol`, 4 bits": rounded_by_us,
    "torchlift `prune`, then `Smol`, 4 bits": cut_and_rounded,
}


@torch.no_grad()
def latency(model: nn.Module, dense: nn.Module, x: Tensor, rounds: int = 11) -> float:
    """The median ratio of paired calls, in seconds of the processor."""
    ratios = list[float]()
    for _ in range(rounds):
        took = list[float]()
        for one in (model, dense):
            one(x)
            start = time.process_time()
            one(x)
            took.append(time.process_time() - start)
        ratios.append(took[0] / took[1])
    return statistics.median(ratios)


def row(arm: str, dense: nn.Module, bench: Bench) -> dict[str, Any]:
    """One arm's line; what a tool cannot do is its line."""
    start = time.process_time()
    try:
        outcome = ARMS[arm](copy.deepcopy(dense), bench)
    except CheckpointError:
        raise  # two at work in one folder
    except Exception as error:  # any failure of a tool is its result here
        return {"failed": f"{type(error).__name__}: {error}"[:200]}
    seconds = time.process_time() - start
    model, file = outcome.pop("model"), outcome.pop("file")
    sizes = {"bytes": len(file), "gzipped": len(gzip.compress(file))}
    speed = {f"latency_{count}": latency(model, dense, bench.test[0][:count]) for count in (1, 32)}
    params = sum(p.numel() for p in model.parameters())
    figures = {"accuracy": bench.accuracy(model), "parameters": params, "seconds": seconds}
    return outcome | sizes | speed | figures


def table(record: dict[str, Any]) -> str:
    """Means over the complete seeds, ± the deviation of the accuracies, relative to the dense arm."""
    lines = ["| | accuracy | file | gzipped | time, 1 image | time, 32 | difference |", "|---|" + "---:|" * 6]
    for name in MODELS:
        dense = record["rows"].get(f"{name}/0/dense")
        if dense is None:
            continue
        complete = [
            seed
            for seed in range(record["seeds"])
            if all(f"{name}/{seed}/{arm}" in record["rows"] for arm in ARMS)
        ]
        seeds = "1 seed" if len(complete) == 1 else f"{len(complete)} seeds"
        lines.append(f"| **{name}** ({dense['parameters']:,} parameters, {seeds}) |" + " |" * 6)
        for arm in ARMS:
            cells = [record["rows"].get(f"{name}/{seed}/{arm}", {}) for seed in complete]
            rows = [row for row in cells if "accuracy" in row]
            lines.append(f"| {arm} | " + (line(rows, dense) if rows else "– | | | | | |"))
    return "\n".join(lines) + "\n"


def line(rows: list[dict[str, Any]], dense: dict[str, Any]) -> str:
    """One arm of the table."""

    def mean(key: str) -> float:
        return statistics.fmean(row[key] for row in rows)

    spread = statistics.stdev(row["accuracy"] for row in rows) if len(rows) > 1 else 0.0
    files = [
        f"{mean(key) / 1000:,.0f} kB ({dense['bytes'] / mean(key):.1f} ×)" for key in ("bytes", "gzipped")
    ]
    times = [f"{mean(key):.2f}" for key in ("latency_1", "latency_32")]
    gap = f"{max(row['difference'] for row in rows):.0e}" if any(row["difference"] for row in rows) else "0"
    return " | ".join(
        [
            f"{mean('accuracy'):.1%}" + (f" ± {spread:.1%}" if len(rows) > 1 else ""),
            *files,
            *times,
            f"{gap} |",
        ]
    )


def write(record: dict[str, Any]) -> None:
    """The table into the page, between its marks."""
    before, rest = PAGE.read_text().split("<!-- table -->\n", 1)
    after = rest.split("<!-- end of the table -->", 1)[1]
    PAGE.write_text(f"{before}<!-- table -->\n{table(record)}<!-- end of the table -->{after}")


def main() -> None:
    """Measure what is missing, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=None)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "other_tools.json")
    parser.add_argument("--work", type=Path, default=Path("runs/other_tools"))
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--tuning", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--page", action="store_true", help="write the table into docs/other-tools.md")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    scale = {key: getattr(chosen, key) for key in ("images", "epochs", "tuning")}
    earlier = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    rows: dict[str, Any] = earlier["rows"] if earlier.get("scale") == scale else {}
    about = "one thread, a machine with other work; CIFAR-10 subset, crops and flips, 2,000 test images"
    record = {"what": str(__doc__).split("\n")[0], "scale": scale, "machine": about, "seeds": chosen.seeds}
    record |= {"rows": rows}
    bench = Bench(chosen.data, chosen.work, **scale)
    for seed, name in itertools.product(range(chosen.seeds), MODELS):
        missing = [arm for arm in ARMS if f"{name}/{seed}/{arm}" not in rows]
        dense = trained(name, bench) if missing else nn.Identity()
        for arm in missing:
            bench.seed, bench.name = seed + 1, f"{name}-{seed}-{list(ARMS).index(arm)}"
            bench.make = MODELS[name]
            rows[f"{name}/{seed}/{arm}"] = row(arm, dense, bench)
            chosen.out.write_text(json.dumps(record, indent=1) + "\n")
            print(name, seed, arm, rows[f"{name}/{seed}/{arm}"], flush=True)
    print(table(record))
    if chosen.page:
        write(record)


def trained(name: str, bench: Bench) -> nn.Module:
    """The dense network, the same for all seeds."""
    bench.seed, bench.name = 0, name
    torch.manual_seed(0)
    return bench.fit(MODELS[name](), bench.epochs)


if __name__ == "__main__":
    main()
