"""A float ONNX file, its integer variants, and which of them is best here."""

import dataclasses
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from torchlift import files
from torchlift.channels.example_inputs import Example, tensors
from torchlift.deploy.exporting import Exported
from torchlift.deploy.integer_forms import prepare
from torchlift.deploy.integer_graph import (
    LAYERS,
    ActivationGrid,
    IntegerChoice,
    NodePlan,
    OnnxGraph,
    integer_model,
    layers_of,
    planned,
)
from torchlift.deploy.integer_ranges import observed
from torchlift.deploy.integer_weights import Recorded
from torchlift.errors import TorchliftError

Array = np.ndarray[Any, Any]
Feed = dict[str, Array]

FASTER = 0.98
"""What counts as faster: noise is less."""
SENSITIVE = 3e-3
"""Part of the outputs' variance below which no layer is worth float arithmetic; "rounded" in the results of
benchmarks/integer_latency.py says what such an error does to a classifier."""
ONE_STEP = {"one step": frozenset(LAYERS), "one step in linear layers": frozenset({"linear"})}
"""The variants with one step for each weight of some classes: kernels are faster with it for few samples."""
LONG = 0.2
"""Part of a call from which on a single layer is tried in float."""
WHOLE = ""
"""The name of the whole call among its layers."""
CLOSE = 1.5
"""Times the squared error of the outputs that one step for a weight may leave."""
FAR = 0.1
"""Part of the outputs' variance above which a file is of doubtful use."""
OPENINGS, SECONDS, ROUNDS, PROFILED = 3, 0.15, 51, 5
"""The most that timing one file takes, and how many calls say what its layers take."""
IN_FILE = ("integer", "ratio", "output_error", "float", "calibration", "runtime")
"""What of a card stands in the file itself."""


@dataclasses.dataclass
class File:
    """A float file and what is known of its tensors."""

    plain: Any
    """The float model as it was exported."""
    whole: OnnxGraph
    records: list[Recorded]
    ranges: dict[str, ActivationGrid] = dataclasses.field(default_factory=dict[str, ActivationGrid])
    feeds: list[Feed] = dataclasses.field(default_factory=list[Feed])

    @classmethod
    def open(cls, path: Path, records: list[Recorded]) -> "File":
        """A file as the exporter wrote it."""
        plain = onnx.load(str(path))
        twin = onnx.ModelProto()
        twin.CopyFrom(plain)
        return cls(plain, prepare(twin), records)

    def calibrate(self, batches: Iterable[Example]) -> None:
        """The grids of all activations that may become integers."""
        names = [info.name for info in self.plain.graph.input]
        self.feeds = [
            dict(zip(names, (t.cpu().numpy() for t in tensors(batch)), strict=True)) for batch in batches
        ]
        self.check_batch()
        plan = planned(self.whole, IntegerChoice())
        if not layers_of(self.whole, plan.integer):
            raise TorchliftError(
                "export: the model has no layer with an integer kernel; leave out integer=True."
            )
        self.ranges = observed(
            self.whole.model, sorted({*plan.tensors, *plan.tensors.values()}), session, self.feeds
        )
        self.ranges |= {name: grid for name in self.ranges if (grid := self.trained_range(name)) is not None}

    def trained_range(self, name: str) -> ActivationGrid | None:
        """The range of a Clip with two bounds, zero among them: that of the model, not of the data."""
        node = self.whole.maker.get(name)
        if node is None or node.op_type != "Clip" or len(node.input) != 3:
            return None
        low, high = (self.whole.constants.get(one) for one in node.input[1:])
        if low is None or high is None or not np.isfinite([low, high]).all() or not low <= 0 < high:
            return None
        return ActivationGrid.of(float(low), float(high)) if self.reaches(name, float(high)) else None

    def reaches(self, name: str, high: float) -> bool:
        """Whether the data use a good part of a range."""
        grid = self.ranges[name]
        return float(grid.scale) * (255 - int(grid.zero)) > 0.5 * high

    def variant(self, choice: IntegerChoice) -> tuple[Any, dict[str, str], NodePlan]:
        """The model with these operations left in float."""
        plan = planned(self.whole, choice)
        return *integer_model(self.whole, plan, self.ranges, self.records), plan

    def best(
        self, expected: list[list[Array]], example: Example
    ) -> tuple[IntegerChoice | None, dict[str, str]]:
        """The fastest choice of operations; None: the float file; and why the rest stays float."""
        classes = set(planned(self.whole, IntegerChoice()).integer.values()) - {"pass"}
        reasons: dict[str, str] = {}
        choice = IntegerChoice()
        for name in self.sensitive(expected):
            choice = choice.without(nodes=[name])
            reasons[self.weight_of(name)] = "float: the outputs move much less"
        feed = self.feed(example)
        trials = {c: choice.without(classes=[c]) for c in sorted(classes)}
        trials |= {name: choice.without(nodes=[name]) for name in self.slowest(choice, feed)}
        trials = {c: one for c, one in trials.items() if layers_left(self.whole, one)}
        for coarse, name in {own & classes: name for name, own in ONE_STEP.items() if own & classes}.items():
            variant = dataclasses.replace(choice, one_step=coarse)
            if self.as_close(variant, choice, expected):
                trials[name] = variant
        models = [self.variant(one)[0] for one in (choice, *trials.values())]
        plain, full, *rest = cpu_seconds([self.plain, *models], feed)
        faster = {c: seconds for c, seconds in zip(trials, rest, strict=True) if seconds < FASTER * full}
        slow = [c for c in faster if c not in ONE_STEP]
        coarse = min(faster.keys() & ONE_STEP, key=lambda name: faster[name], default=None)
        one_step = trials[coarse].one_step if coarse else frozenset[str]()
        mixes = {
            names: dataclasses.replace(choice, one_step=one_step).without(
                classes=classes & {*names}, nodes={*names} - classes
            )
            for names in (tuple(slow), tuple(c for c in slow if c not in classes))
        }
        mixes = {names: one for names, one in mixes.items() if one != choice and layers_left(self.whole, one)}
        if mixes:
            models = [self.variant(one)[0] for one in (choice, *mixes.values())]
            plain, full, *rest = cpu_seconds([self.plain, *models], feed)
            best = min(rest)
            if best < FASTER * full:
                left = list(mixes)[rest.index(best)]
                choice, full = mixes[left], best
                reasons |= {self.weight_of(c): "float: faster here" for c in left}
        if full < plain:
            return choice, reasons
        return None, {"model": f"float: integers take {full / plain:.2f} of the time"}

    def slowest(self, choice: IntegerChoice, feed: Feed) -> list[str]:
        """The layers of integers that take a good part of the call each."""
        layers = layers_of(self.whole, planned(self.whole, choice).integer)
        seconds = layer_seconds(self.variant(choice)[0], layers, feed)
        return [name for name in layers if seconds[name] > LONG * seconds[WHOLE]]

    def weight_of(self, name: str) -> str:
        """The weight of a layer, which says more than the name of its output; a class as it is."""
        return self.whole.maker[name].input[1] if name in self.whole.maker else name

    def as_close(self, coarse: IntegerChoice, fine: IntegerChoice, expected: list[list[Array]]) -> bool:
        """Whether fewer steps leave the outputs as close, or nearly."""
        few = self.feeds[:2]
        errors = [
            squared_error(session_outputs(self.variant(one)[0], few), expected) for one in (coarse, fine)
        ]
        return errors[0] <= CLOSE * errors[1]

    def sensitive(self, expected: list[list[Array]]) -> list[str]:
        """The first or the last layer, if float arithmetic there at least halves the error of the outputs."""
        layers = layers_of(self.whole, planned(self.whole, IntegerChoice()).integer)
        ends = dict.fromkeys((layers[0], layers[-1])) if len(layers) > 2 else {}
        few = self.feeds[:2]
        error = squared_error(session_outputs(self.variant(IntegerChoice())[0], few), expected)
        if error < SENSITIVE:
            return []
        without = {name: self.variant(IntegerChoice().without(nodes=[name]))[0] for name in ends}
        return [
            name
            for name, m in without.items()
            if squared_error(session_outputs(m, few), expected) < error / 2
        ]

    def check_batch(self) -> None:
        """One line where the exporter has fixed a size that the calibration data have otherwise."""
        for info in self.plain.graph.input:
            dims = info.type.tensor_type.shape.dim
            for feed in self.feeds:
                sizes = zip(dims, feed[info.name].shape, strict=True)
                if any(dim.HasField("dim_value") and dim.dim_value != size for dim, size in sizes):
                    raise TorchliftError(
                        f"export: the model fixes the shape of {info.name!r} when it is exported (a forward "
                        "that counts its samples, such as len(x)): write x.shape[0] or x.flatten(1) there."
                    )

    def feed(self, example: Example) -> Feed:
        """The example under the names of the file."""
        names = [info.name for info in self.plain.graph.input]
        return dict(zip(names, (t.cpu().numpy() for t in tensors(example)), strict=True))

    def deliver(
        self,
        path: str | os.PathLike[str],
        choice: IntegerChoice | None,
        reasons: Mapping[str, str],
        expected: list[list[Array]],
        example: Example,
    ) -> Exported:
        """Write the chosen file with its card."""
        weights = {node.input[1]: "float32" for node in self.whole.nodes if self.whole.kind(node) in LAYERS}
        model, integer = self.plain, NodePlan({}, {}, {})
        if choice is not None:
            model, kinds, integer = self.variant(choice)
            weights |= kinds
        outputs = session_outputs(model, self.feeds)
        if not all(np.isfinite(y).all() for batch in outputs for y in batch):
            raise TorchliftError(f"export: {path} gives values that are not finite on the calibration data.")
        models = [self.plain] if choice is None else [self.plain, model]
        seconds = cpu_seconds(models, self.feed(example))
        plain, own = seconds[0], seconds[-1]
        error = squared_error(outputs, expected)
        card = {
            "integer": choice is not None,
            "ratio": round(own / plain, 3),
            "milliseconds": round(1000 * own, 4),
            "float_milliseconds": round(1000 * plain, 4),
            "output_error": error,
            "operations": count_operations(integer.integer.values()),
            "weights": weights,
            "one_step": [] if choice is None else sorted(choice.one_step),
            "float": dict(reasons),
            "bytes": 0,
            "float_bytes": self.plain.ByteSize(),
            "calibration": sum(len(next(iter(feed.values()))) for feed in self.feeds),
            "runtime": f"onnxruntime {onnxruntime.__version__}",
        }
        del model.metadata_props[:]
        metadata = model.metadata_props.add()
        metadata.key, metadata.value = "torchlift", json.dumps({k: card[k] for k in IN_FILE})
        data = model.SerializeToString()
        card["bytes"] = len(data)
        files.write_file(Path(path), data)
        if error > FAR:
            warnings.warn(
                f"export: rounding moves the outputs by {error:.0%} of their variance; pass more calibration "
                "data, or train with recipes.Smol(bits=8, activations=True).",
                stacklevel=3,
            )
        return Exported.of(largest_difference(outputs, expected), card)


def layers_left(whole: OnnxGraph, choice: IntegerChoice) -> bool:
    """Whether any layer with a weight is integers."""
    return bool(layers_of(whole, planned(whole, choice).integer))


def count_operations(kinds: Iterable[str]) -> dict[str, int]:
    """How many operations of each class."""
    counts: dict[str, int] = {}
    for kind in kinds:
        counts[kind] = counts.get(kind, 0) + 1
    return counts


def session(model: Any, profile: Path | None = None) -> Any:
    """A model in ONNX Runtime, on one thread; what its nodes take goes to a file of this name."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def session_outputs(model: Any, feeds: list[Feed]) -> list[list[Array]]:
    """The floating-point outputs on each batch."""
    opened = session(model)
    return [[y for y in opened.run(None, feed) if y.dtype.kind == "f"] for feed in feeds]


def cpu_seconds(models: list[Any], feed: Feed) -> list[float]:
    """Processor seconds of a call of each model on one thread, medians; they take turns, and each is called
    once before: what the others leave in the cache is of no use to it. Sessions are opened several times:
    where their weights lie in memory matters, too."""
    seconds: list[list[float]] = [[] for _ in models]
    for _ in range(OPENINGS):
        opened = [session(model) for model in models]
        spent, number = 0.0, 0
        while number < 3 or (number < ROUNDS and spent < SECONDS * len(models)):
            for one, mine in zip(opened, seconds, strict=True):
                one.run(None, feed)
                start = time.process_time()
                one.run(None, feed)
                took = time.process_time() - start
                spent += took
                if number:
                    mine.append(took)
            number += 1
    return [statistics.median(mine) for mine in seconds]


def layer_seconds(model: Any, layers: Collection[str], feed: Feed) -> dict[str, float]:
    """Seconds of each layer in a call, and of the WHOLE call: the least of some calls."""
    with tempfile.TemporaryDirectory() as folder:
        opened = session(model, Path(folder) / "profile")
        for _ in range(PROFILED):
            opened.run(None, feed)
        events = json.loads(Path(opened.end_profiling()).read_text())
    runs: dict[str, list[float]] = {}
    for event in events:  # whose names are those of nodes, and what the runtime has made of them
        if event["cat"] == "Node" and event["name"].endswith("kernel_time"):
            runs.setdefault(event["name"], []).append(1e-6 * event["dur"])
    seconds = dict.fromkeys([*layers, WHOLE], 0.0)
    for event, took in runs.items():
        own = [name for name in layers if event.startswith(f"{name}_")]
        for name in (max(own, key=len), WHOLE) if own else (WHOLE,):
            seconds[name] += min(took)
    return seconds


def squared_error(actual: list[list[Array]], expected: list[list[Array]]) -> float:
    """Σ (y − ŷ)² / Σ (y − ȳ)² over all outputs of the batches that were run."""
    off = spread = 0.0
    for index in range(len(actual[0])):
        y = np.concatenate([batch[index].astype(np.float64) for batch in expected[: len(actual)]])
        z = np.concatenate([batch[index].astype(np.float64) for batch in actual])
        off += float(np.square(y - z).sum())
        spread += float(np.square(y - y.mean(0)).sum())
    return off / spread if spread else float(off > 0)


def largest_difference(actual: list[list[Array]], expected: list[list[Array]]) -> float:
    """The largest difference between outputs, relative to the largest of them."""
    pairs = [pair for both in zip(actual, expected, strict=True) for pair in zip(*both, strict=True)]
    scale = max(1.0, max(float(np.abs(y).max()) for _, y in pairs))
    return max(float(np.abs(z - y).max()) for z, y in pairs) / scale
