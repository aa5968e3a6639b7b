"""Linear layers that read averages over neighboring positions of a map instead of the positions."""

import copy
import dataclasses
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from torchlift.core import Node, Problem, masks_of
from torchlift.core.modules import shares_weights
from torchlift.loss import evaluating


def block_sums(weight: Tensor, maps: tuple[int, int, int], size: int) -> Tensor:
    """U[o, c, i, j] = Σ W[o, c, y, x] over the size × size positions (y, x) of block (i, j); flat rows.

    U of the blocks' averages is the layer whose weight is, in every block, the mean of W's: the nearest to W
    among those that are constant there.
    """
    channels, height, width = maps
    blocks = weight.view(-1, channels, height // size, size, width // size, size)
    return blocks.sum((3, 5)).flatten(1)


@dataclasses.dataclass(frozen=True)
class MapReader:
    """A linear layer that reads a flattened map: its name in the model, and the map's shape."""

    name: str
    maps: tuple[int, int, int]


FLATTENS = frozenset({"flatten", "view", "reshape"})


class ReaderTrace(TorchFunctionMode):
    """While a model runs: which Linear layers are given a map that was flattened, by whatever means."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.flat: list[tuple[Tensor, tuple[int, ...]]] = []
        self.readers: dict[str, MapReader] = {}
        modules = body.named_modules()
        self.names: dict[nn.Module, str] = {
            module: name for name, module in modules if type(module) is nn.Linear
        }
        self.handles = [module.register_forward_pre_hook(self.reads) for module in self.names]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        flattened = args[0] if args and getattr(func, "__name__", "") in FLATTENS else None
        if (
            isinstance(flattened, Tensor)
            and flattened.ndim == 4
            and out.shape == (len(flattened), flattened[0].numel())
        ):
            self.flat.append((out, tuple(flattened.shape)))  # kept: no other tensor then takes its place
        return out

    def reads(self, layer: nn.Module, args: tuple[Tensor]) -> None:
        """Compare a layer's input."""
        for out, shape in self.flat:
            if args and out is args[0]:
                name = self.names[layer]
                self.readers[name] = MapReader(name, (shape[1], shape[2], shape[3]))


def readers(problem: Problem, x: Any) -> list[MapReader]:
    """The Linear layers whose input is a flattened map of channels × height × width."""
    body = problem.body()
    assert body is not None
    trace = ReaderTrace(body)
    try:
        with evaluating(problem), torch.no_grad(), trace:
            problem.predict(x)
    finally:
        for handle in trace.handles:
            handle.remove()
    return list(trace.readers.values())


def why_not_pooled(problem: Problem, reader: MapReader, size: int) -> str | None:
    """Why a layer cannot read averages, or None."""
    body = problem.body()
    assert body is not None
    layer = body.get_submodule(reader.name)
    if id(layer) in shares_weights(body):
        return "shares its weight with another layer"
    if masks_of(layer):
        return "is pruned, and sums over neighbors would fill its zeros: pool first, prune then"
    _, height, width = reader.maps
    if height % size or width % size:
        return f"reads maps of {height} × {width}, which size={size} does not divide"
    return None


def pool(body: nn.Module, reader: MapReader, size: int) -> None:
    """Let a layer of the model, in place, read averages; nodes around it stay around it."""
    layer = body.get_submodule(reader.name)
    assert isinstance(layer, nn.Linear)
    weight = block_sums(layer.weight.detach(), reader.maps, size)
    small = copy.deepcopy(layer)
    small.weight, small.in_features = nn.Parameter(weight, layer.weight.requires_grad), weight.shape[1]
    path = reader.name
    owner = body.get_submodule(path.rpartition(".")[0])
    outer: nn.Module = small
    while isinstance(owner, Node) and path:
        owner.inner = outer
        outer, path = owner, path.rpartition(".")[0]
        owner = body.get_submodule(path.rpartition(".")[0])
    front = nn.Unflatten(1, reader.maps), nn.AvgPool2d(size), nn.Flatten()
    body.set_submodule(path, nn.Sequential(*front, outer).train(layer.training))
