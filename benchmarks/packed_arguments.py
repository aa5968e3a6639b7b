"""Hostile arguments for one operation of a stored program."""

import random
from typing import Any

import torch
from torch import Tensor

from torchlift.packed.budget import PackedError
from torchlift.packed.operations import operation
from torchlift.packed.programs import Program, verify

LIMIT = 2**22
FENCE = 64
"""Sentinels before and after each tensor."""
KINDS = [torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.bfloat16, torch.float16]
KINDS += [torch.uint8, torch.int8, torch.complex64]
NUMBERS = [
    0,
    1,
    2,
    3,
    -1,
    -2,
    -3,
    4,
    5,
    7,
    100,
    -100,
    2**31,
    2**31 - 1,
    -(2**31),
    2**62,
    2**63 - 1,
    -(2**63),
    1000,
]
REALS = [0.0, 1.0, -1.0, 0.5, 2.0, 1e30, -1e30, float("inf"), float("nan"), 1e-30]
WORDS = [
    "none",
    "tanh",
    "constant",
    "reflect",
    "replicate",
    "circular",
    "same",
    "valid",
    "ij",
    "floor",
    "trunc",
    "ij,jk->ik",
    "x",
]


def tensor(rng: random.Random, kind: torch.dtype | None = None, rank: int | None = None) -> Tensor:
    """Small, of any rank and type; whole numbers are often far out of any range."""
    rank = rng.choice([0, 1, 2, 2, 3, 3, 4, 4, 5]) if rank is None else rank
    shape = [rng.choice([0, 1, 2, 2, 3, 4, 4, 8, 17]) for _ in range(rank)]
    kind = kind or rng.choice(KINDS[:1] * 8 + KINDS)
    if kind.is_floating_point or kind.is_complex:
        made = torch.randn(shape).mul(10).to(kind)
    elif kind == torch.bool:
        made = torch.rand(shape) > 0.5
    else:
        most = rng.choice([3, 3, 3, 100, 2**7 - 1])
        made = torch.randint(-most if rng.random() < 0.5 else 0, most, shape).to(kind)
        if rng.random() < 0.1 and made.numel():
            made.view(-1)[0] = torch.iinfo(kind).min
    if rank > 1 and rng.random() < 0.2:
        made = made.transpose(0, -1)
    return made


def fenced(made: Tensor) -> tuple[Tensor, Tensor]:
    """The same values between sentinels, and the whole block: nobody may write to either."""
    block = torch.full((made.numel() + 2 * FENCE,), 1, dtype=made.dtype)
    inside = block[FENCE : FENCE + made.numel()].as_strided(made.shape, made.stride())
    return inside.copy_(made), block


def number(rng: random.Random) -> int:
    """Small most of the time."""
    return rng.choice([1, 1, 2, 3, 0, -1]) if rng.random() < 0.7 else rng.choice(NUMBERS)


def value(kind: str, rng: random.Random, base: list[Tensor]) -> Any:
    """An argument of a type of the schema."""
    if kind.startswith("Optional["):
        return None if rng.random() < 0.4 else value(kind[9:-1], rng, base)
    if kind.startswith("List["):
        return [value(kind[5:-1], rng, base) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4]))]
    if kind == "Tensor":
        if base and rng.random() < 0.5:
            other = rng.choice(base)
            return torch.randn(other.shape).to(other.dtype) if rng.random() < 0.5 else other
        rank = rng.choice(base).ndim if base and rng.random() < 0.5 else None
        return tensor(rng, base[0].dtype if base and rng.random() < 0.7 else None, rank)
    if kind == "int":
        return number(rng)
    if kind in ("number", "Scalar"):
        return number(rng) if rng.random() < 0.5 else rng.choice(REALS)
    if kind == "float":
        return rng.choice(REALS)
    if kind == "bool":
        return rng.random() < 0.3
    return rng.choice(WORDS) if kind == "str" else None


def attempt(name: str, rng: random.Random) -> str:
    """Make a program of one step and run it: refused, failed in torch, or ran."""
    torch.manual_seed(rng.randrange(2**31))
    program, given = Program(), list[Tensor]()
    if name.startswith("operator."):
        args: list[Any] = [
            rng.choice([*NUMBERS, *REALS, [1, 2], "ab"]) for _ in range(rng.choice([1, 2, 2, 3]))
        ]
        kwargs: dict[str, Any] = {}
    else:
        args, kwargs = arguments(operation(name), rng, given)
    program.names, program.weights = [f"input{k}" for k in range(len(given))], []
    program.steps, program.results = [(name, args, kwargs)], {"value": len(given)}
    program.eval()
    pairs = [fenced(made) for made in given]
    before = [block.clone() for _, block in pairs]
    how = ran(program, [inside for inside, _ in pairs])
    same = all(equal(block, old) for (_, block), old in zip(pairs, before, strict=True))
    return how if same else "wrong: wrote to its inputs or beside them"


def equal(first: Tensor, second: Tensor) -> bool:
    """Bit for bit, NaN for NaN."""
    return bytes(first.view(torch.uint8).numpy()) == bytes(second.view(torch.uint8).numpy())


def ran(program: Program, given: list[Tensor]) -> str:
    """Check and run."""
    try:
        verify(program, LIMIT)
        program(*given)
    except PackedError:
        return "refused"
    except Exception:  # torch may raise anything on hostile arguments; only a crash would be a finding
        return "failed in torch"
    return "ran"


def arguments(function: Any, rng: random.Random, given: list[Tensor]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by the schema; tensors become inputs of the program."""

    def noted(made: Any) -> Any:
        if isinstance(made, Tensor):
            given.append(made)
            return {"value": len(given) - 1}
        return [noted(part) for part in made] if isinstance(made, list) else made

    args, kwargs = list[Any](), dict[str, Any]()
    for argument in function._schema.arguments:
        kind = str(argument.real_type).replace("SymInt", "int")
        if "ScalarType" in kind:
            made: Any = rng.choice([None, *KINDS])
        elif any(word in kind for word in ("Device", "Layout", "MemoryFormat", "Generator")):
            made = None
        else:
            made = value(kind, rng, given)
        if argument.kwarg_only:
            if rng.random() < 0.5:
                kwargs[argument.name] = noted(made)
        elif argument.has_default_value() and rng.random() < 0.2:
            break
        else:
            args.append(noted(made))
    return args, kwargs
