"""Which channels stand and fall together: coupled by sums, norms, concatenation, flattening."""

import copy
import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from torchlift.deploy.probing import Example, call, tensors
from torchlift.errors import TorchliftError

Role = Literal["writes", "reads", "passes"]

CONV = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
NORM = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)  # pyright: ignore[reportPrivateUsage]


@dataclasses.dataclass(frozen=True, eq=False)
class Member:
    """A layer's part in a coupling: its channel ``index[k]`` is channel ``root[k]`` of the coupling."""

    layer: str
    role: Role
    index: Tensor
    root: Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Coupling:
    """Channels 0, …, ``channels`` − 1 that must be cut in all members at once."""

    name: str
    channels: int
    members: tuple[Member, ...]
    blocked: str = ""
    """Why no channel may be cut, where that is clear at once."""

    def of(self, role: Role) -> Iterator[Member]:
        """The members of one role."""
        return (member for member in self.members if member.role == role)


def couplings(model: nn.Module, example: Example) -> list[Coupling]:
    """All couplings of a model, found by torch-pruning's dependency graph on a copy."""
    graph = dependency_graph(copy.deepcopy(model), example)
    names = {module: name for name, module in graph.model.named_modules()}
    return [coupling(group, names) for group in graph.get_all_groups()]


def dependency_graph(model: nn.Module, example: Example) -> Any:
    """torch-pruning's graph of the model."""
    try:
        import torch_pruning
    except ImportError as error:
        raise TorchliftError("shrink needs torch-pruning: pip install 'torchlift[export]'.") from error
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    graph: Any = torch_pruning.DependencyGraph()
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        return graph.build_dependency(model.eval(), example, forward_fn=traceable, verbose=False)


def traceable(model: nn.Module, example: Example) -> list[Tensor]:
    """The outputs that can be followed back to weights."""
    found = [part for part in tensors(call(model, example)) if part.requires_grad]
    if not found:
        raise RuntimeError("no output depends on a weight as far as autograd can see")
    return found


def coupling(group: Any, names: dict[nn.Module, str]) -> Coupling:
    """A group of torch-pruning as a value of ours."""
    members: list[Member] = []
    blocked = ""
    for item in group:
        module, handler = item.dep.target.module, item.dep.handler.__name__
        if isinstance(module, nn.Parameter):
            blocked = blocked or "a bare parameter shares its channels"
        elif module in names:
            found = role(module, outputs=handler == "prune_out_channels")
            blocked = blocked or (found if found not in ("writes", "reads", "passes") else "")
            index, root = torch.tensor(item.idxs), torch.tensor(item.root_idxs)
            if found in ("writes", "reads", "passes") and int(index.max()) >= width(module, found):
                blocked = (
                    blocked or f"channels do not line up at {names[module]} (padded or sliced on the way?)"
                )
                continue
            members.append(Member(names[module], found, index, root))  # pyright: ignore[reportArgumentType]
        elif type(module).__name__ == "_OutputOp":
            blocked = blocked or "the model's output has these channels"
    root = group[0]
    if not blocked and not any(member.role == "reads" for member in members):
        blocked = "the model's output has these channels"
    return Coupling(names[root.dep.target.module], len(root.idxs), tuple(members), blocked)


def role(module: nn.Module, *, outputs: bool) -> str:
    """What a layer does with the channels: writes, reads or passes them; or why they cannot be cut there."""
    if isinstance(module, (*CONV, *TRANSPOSED)):
        if module.groups > 1:
            whole = module.groups == module.in_channels == module.out_channels
            return "passes" if whole else f"a grouped convolution ({module.groups} groups) is in the way"
        return "writes" if outputs else "reads"
    if isinstance(module, nn.Linear):
        return "writes" if outputs else "reads"
    if isinstance(module, nn.Embedding):
        return "writes"
    if isinstance(module, (*NORM, nn.PReLU)):
        return "passes"
    return f"a {type(module).__name__} mixes the channels"


def width(module: nn.Module, found: str) -> int:
    """How many channels a layer writes, reads or passes."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor):
        return int(getattr(module, "num_features", 0))
    return weight.shape[int((found == "reads") != isinstance(module, (*TRANSPOSED, nn.Embedding)))]


def channel_groups(model: nn.Module, example: Example) -> dict[str, dict[str, int]]:
    """Groups for :class:`~torchlift.lifts.SoftMask`: what must be zero for a channel to be cut exactly.

    ``{coupling: {parameter: dimension}}`` with the rows and biases of all layers that write the channels and
    the affine parameters of the norms behind them. Couplings that cannot be cut are left out.
    """
    groups: dict[str, dict[str, int]] = {}
    for found in couplings(model, example):
        plain = all(
            torch.equal(m.index, m.root) and len(m.index) == found.channels for m in found.of("writes")
        )
        if found.blocked or not plain or found.channels < 2:
            continue
        members: dict[str, int] = {}
        for member in found.members:
            layer = model.get_submodule(member.layer)
            whole = torch.equal(member.index, member.root) and len(member.index) == found.channels
            if member.role != "reads" and whole:
                members |= {
                    f"{member.layer}.{name}": int(
                        p.ndim > 1 and isinstance(layer, (*TRANSPOSED, nn.Embedding))
                    )
                    for name, p in layer.named_parameters(recurse=False)
                    if p.shape[:1] == (found.channels,) or p.ndim > 1
                }
        groups[found.name] = members
    return groups
