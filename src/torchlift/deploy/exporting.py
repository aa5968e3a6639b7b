"""``export``: the model as ONNX or as a program of torch.export, checked against itself."""

import contextlib
import importlib.util
import logging
import os
import warnings
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from torchlift.channels.example_inputs import Example, changed, outputs, taken, tensors
from torchlift.channels.layout import channels_first
from torchlift.channels.sparse_linear import with_dense_layers
from torchlift.core.stored import without_records
from torchlift.errors import TorchliftError
from torchlift.loss import evaluating


class Exported(float):
    """The largest difference between the file's outputs and the model's, relative to the largest of them.

    ``card`` says more of an integer file: ``ratio`` is its time divided by that of the float file,
    ``output_error`` is Σ (y − ŷ)² / Σ (y − ȳ)² on the calibration data, ``weights`` what became of each, and
    ``float`` what stays float and why.
    """

    card: dict[str, Any]

    @classmethod
    def of(cls, error: float, card: Mapping[str, Any] | None = None) -> "Exported":
        """An error with a card."""
        exported = cls(error)
        exported.card = dict(card or {})
        return exported


def export(
    model: nn.Module,
    example: Example,
    path: str | os.PathLike[str],
    *,
    integer: bool | Literal["all"] = False,
    calibration: Any = None,
    tolerance: float = 1e-4,
    opset: int | None = None,
) -> Exported:
    """Write the model, for any batch size where that is possible; the largest error against torch.

    The path's ending says what is written: ``.onnx`` is ONNX, ``.pt2`` a program that ``torch.export.load``
    reads. The file is run on the example (ONNX in ONNX Runtime, where that is installed); an error if its
    outputs differ by more than ``tolerance`` (relative to the largest of them). ``opset``: ONNX's version.

    ``integer=True`` writes ONNX that computes with int8 weights and activations, whose ranges are those of
    ``calibration`` (64 to 1,024 inputs: a tensor, a dict, or batches): norms are folded, levels stay as
    trained (``tl.stored``), and what is slower here than in float at the example's batch stays float.
    ``"all"`` leaves nothing in float that has an integer kernel. ``.card`` of the result says how fast it
    is and how far the outputs moved.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in WRITERS:
        raise TorchliftError(f"export: {path} ends in {suffix!r}; it writes {' and '.join(WRITERS)}.")
    if suffix != ".onnx" and (integer or opset is not None):
        raise TorchliftError(f"export: {path} ends in {suffix!r}; integer= and opset= are of .onnx.")
    model = with_dense_layers(model)
    whole, example = example, minimal(example)
    taken(model, example)
    if integer:
        from torchlift.deploy.integer import export_integer  # which exports, and rewrites the float file

        return export_integer(model, whole, path, calibration, everything=integer == "all")
    convert, run = WRITERS[suffix]
    with evaluating(model), without_records(model):
        convert(model, example, path, opset)
        expected = outputs(model, [example])
    error = largest_deviation(expected, run(path, example))
    if error > tolerance:
        raise TorchliftError(f"export: {path} differs from the model by {error:.1e} when it is run.")
    return Exported.of(error)


def minimal(example: Example) -> Example:
    """At most two samples of the example, in memory of their own: exporters write an input's whole storage.

    Numbers are drawn again in the same range, so that nothing of the caller is in the file.
    """
    sizes = {leaf.shape[0] for leaf in tree_leaves(example) if isinstance(leaf, Tensor) and leaf.ndim}
    whole = sizes.pop() if len(sizes) == 1 else 0
    generator = torch.Generator().manual_seed(0)

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        leaf = leaf.detach()[:2] if whole > 2 else leaf.detach()
        if leaf.dtype == torch.bool or leaf.is_complex() or not leaf.numel():
            return leaf.clone(memory_format=torch.contiguous_format)
        low, high = (float(bound) for bound in leaf.aminmax())
        drawn = torch.rand(leaf.shape, generator=generator, dtype=torch.float64) * (high - low) + low
        return (drawn if leaf.is_floating_point() else drawn.round()).to(leaf.device, leaf.dtype)

    return tree_map(own, example)


def example_arguments(example: Example) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of an example."""
    if isinstance(example, Mapping):
        return (), dict(example)
    return tuple(example) if isinstance(example, tuple | list) else (example,), {}


def batch_dimension(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Let the first dimension of every input vary."""
    batch = torch.export.Dim("batch", min=1)

    def free(value: Any) -> Any:
        return {0: batch} if isinstance(value, Tensor) and value.ndim else None

    if kwargs:
        return {name: free(value) for name, value in kwargs.items()}
    return [free(value) for value in args]


def attempts(example: Example) -> Iterator[tuple[tuple[Any, ...], dict[str, Any], Any]]:
    """Arguments to trace with, and which dimensions are free: the first of each, or none.

    A single sample is taken twice for the first: torch takes a dimension of one for a fixed one.
    """
    single = all(
        leaf.shape[0] == 1 for leaf in tree_leaves(example) if isinstance(leaf, Tensor) and leaf.ndim
    )
    twice = changed(example, lambda t: torch.cat([t, t]) if t.ndim else t) if single else example
    args, kwargs = example_arguments(twice)
    yield args, kwargs, batch_dimension(args, kwargs)
    yield *example_arguments(example), None


def untraceable(error: Exception | None) -> TorchliftError:
    """One line of what torch's tracing says."""
    message = next(iter(str(error).splitlines()), "")
    return TorchliftError(f"export: the model cannot be traced ({type(error).__name__}: {message}).")


def exported_program(model: nn.Module, example: Example) -> torch.export.ExportedProgram:
    """torch's exported program in evaluation mode, for any batch size where that is possible."""
    error: Exception | None = None
    for args, kwargs, shapes in attempts(example):
        try:
            with evaluating(model), quiet():
                return torch.export.export(model, args, kwargs, dynamic_shapes=shapes)
        except Exception as failure:  # tracing a user's model may raise anything; the last one is told
            error = failure
    raise untraceable(error) from error


def convert_onnx(
    model: nn.Module, example: Example, path: str | os.PathLike[str], opset: int | None = None
) -> None:
    """torch's ONNX export; a fixed batch size where a free one is not possible."""
    if importlib.util.find_spec("onnxscript") is None:
        raise TorchliftError("export needs onnxscript: pip install 'torchlift[export]'.")
    model = channels_first(model)
    error: Exception | None = None
    for args, kwargs, shapes in attempts(example):
        try:
            with quiet():
                program = torch.onnx.export(
                    model,
                    args,
                    kwargs=kwargs,
                    dynamo=True,
                    dynamic_shapes=shapes,
                    verbose=False,
                    opset_version=opset,
                )
            assert program is not None
            program.save(os.fspath(path), external_data=False)
            return
        except Exception as failure:  # tracing a user's model may raise anything; the last one is told
            error = failure
    raise untraceable(error) from error


def convert_program(
    model: nn.Module, example: Example, path: str | os.PathLike[str], opset: int | None = None
) -> None:
    """torch.export's own file."""
    del opset
    with quiet():
        program = exported_program(model, example)
        program.example_inputs = None
        torch.export.save(program, os.fspath(path))


@contextlib.contextmanager
def quiet() -> Generator[None]:
    """Without what torch's exporter says about operators of packages that are not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def run_onnx(path: str | os.PathLike[str], example: Example) -> list[Tensor] | None:
    """The outputs of an ONNX file, where ONNX Runtime is installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    session: Any = onnxruntime.InferenceSession(os.fspath(path), providers=["CPUExecutionProvider"])
    feed = {node.name: x.numpy() for node, x in zip(session.get_inputs(), tensors(example), strict=True)}
    return [torch.from_numpy(result) for result in session.run(None, feed)]


def run_program(path: str | os.PathLike[str], example: Example) -> list[Tensor]:
    """The outputs of a program that torch.export wrote."""
    with quiet():
        return outputs(torch.export.load(os.fspath(path)).module(), [example])


def largest_deviation(expected: list[Tensor], actual: list[Tensor] | None) -> float:
    """The largest difference between outputs, relative to the largest of them."""
    if actual is None:
        return 0.0
    scale = max(1.0, max(float(x.abs().max()) for x in expected))
    return max(float((a - b).abs().max()) for a, b in zip(expected, actual, strict=True)) / scale


WRITERS = {".onnx": (convert_onnx, run_onnx), ".pt2": (convert_program, run_program)}
