"""What the activations of a network take and give on data, layer by layer, piece by piece."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchlift.errors import DataError
from torchlift.flow.affine import Moments, feature_rows
from torchlift.flow.ops import Op
from torchlift.flow.trace import chunks, recording
from torchlift.loss import call
from torchlift.tree import like


def input_pieces(x: Any, model: nn.Module) -> Iterator[Any]:
    """Inputs, piece by piece, in the model's precision: tensors in memory, or a loader of batches."""
    example = next(model.parameters(), torch.zeros(()))
    in_memory = isinstance(x, Tensor | Mapping)
    any_piece = False
    for piece in chunks(x) if in_memory else x:
        any_piece = True
        yield like(piece if in_memory or isinstance(piece, Tensor) else piece[0], example)
    if not any_piece:
        raise DataError("the data are empty: pass at least one input.")


def activation_label(op: Op) -> str:
    """What an activation is called: the layer before it, else where it is computed."""
    return op.layer or f"{op.name}.{op.function}".strip(".")


def axis(op: Op, model: nn.Module, z: Tensor) -> int:
    """Where the neurons of a value run: as its layer says, else along axis 1 of maps, the last of others."""
    if op.layer:
        return -1 if isinstance(model.get_submodule(op.layer), nn.Linear) else 1
    return 1 if z.ndim > 3 else -1


Visit = Callable[[str, Op, Tensor, Tensor], None]


def visit(model: nn.Module, x: Any, see: Visit) -> None:
    """Run the model over the inputs and show ``see(layer, op, input, output)`` every activation."""
    for piece in input_pieces(x, model):
        seen: dict[str, int] = {}

        def observe(op: Op, z: Tensor, a: Tensor, seen: dict[str, int] = seen) -> None:
            name = activation_label(op)
            seen[name] = seen.get(name, 0) + 1
            see(name if seen[name] == 1 else f"{name} ({seen[name]})", op, z, a)

        with recording(model, observe):
            call(model, piece)


def moments(model: nn.Module, x: Any) -> dict[str, Moments]:
    """The moments of inputs and outputs of every layer's activation, in order."""
    by_layer: dict[str, Moments] = {}

    def see(name: str, op: Op, z: Tensor, a: Tensor) -> None:
        dim = axis(op, model, z)
        seen = Moments.of(feature_rows(z, dim), feature_rows(a, dim))
        by_layer[name] = by_layer[name] + seen if name in by_layer else seen

    visit(model, x, see)
    return by_layer
