"""``run.toml``: what a run is: told from others by it, repeated from it where its parts have names."""

import platform
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch

import torchlift
from torchlift.core import Supervised, Task
from torchlift.errors import CheckpointError
from torchlift.loss import Own
from torchlift.methods.recipe import OneLift
from torchlift.train.batches import Source
from torchlift.train.run.digest import noting_opaque
from torchlift.train.run.identity import describe_data, describe_model
from torchlift.train.run.probe import other_probe
from torchlift.train.run.values import PlainValue, as_toml_value, decode

FORMAT = "torchlift-run-1"
NAME = "run.toml"
HEAD = "# The settings of a run of torchlift. Everything but [machine] must be the same to resume it.\n"
UNCOMPARED = ("id", "machine", "folders", "probe", "undigested")

WORDS = {"batch": "batch", "loss": "loss", "gradient": "gradient", "along": "gradient", "update": "update"}

RunRecord = dict[str, PlainValue]


def fit_record(
    task: Task,
    recipe: Any,
    train: Source,
    valid: Source | None,
    settings: Mapping[str, Any],
    probe: Callable[[], RunRecord],
) -> RunRecord:
    """A single run: recipe, model, data, loss and all other settings by their names, and a first step."""
    loss: Any = task.loss
    if isinstance(loss, Supervised):
        loss = loss.name if loss.module is None else loss.module
    elif isinstance(loss, Own):
        loss = "model"
    with noting_opaque() as opaque:
        record = {
            "recipe": as_toml_value(recipe.lift if type(recipe) is OneLift else recipe),
            "model": describe_model(task.model),
            "data": {"train": describe_data(train), "valid": describe_data(valid)},
            "settings": as_toml_value({"loss": loss, **settings}),
        }
    return record | {"probe": probe(), "undigested": sorted(opaque)}


def headed(kind: str, identity: str, record: RunRecord) -> RunRecord:
    """A record with its marker, its own number and where it was made."""
    machine = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": torch.get_num_threads(),
    }
    head = {"format": FORMAT, "kind": kind, "id": identity, "torchlift": torchlift.__version__}
    return head | record | {"machine": machine}


def to_toml(record: RunRecord) -> bytes:
    """The record as a file."""
    return (HEAD + tomli_w.dumps(record)).encode()


def run_id(folder: Path) -> str:
    """The number of the run in a folder, which its files carry."""
    record = read_record(folder)
    assert record is not None, "the run has been opened, so its record is there"
    return record["id"]


def read_record(folder: Path) -> RunRecord | None:
    """The record in a folder; None where there is none, one line where it is damaged or not ours."""
    path = folder / NAME
    try:
        record = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is damaged ({error}): put it back as it was, or choose another folder."
        ) from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path} ({error.strerror}): choose another folder.") from error
    named = isinstance(record.get("id"), str) and isinstance(record.get("kind"), str)
    if record.get("format") != FORMAT or not named:
        raise CheckpointError(f"{path} is not a {FORMAT} record: choose another folder.")
    return record


def differences(
    old: PlainValue, new: PlainValue, path: str = ""
) -> Iterable[tuple[str, PlainValue, PlainValue]]:
    """The places in which two records differ, in order; :data:`UNCOMPARED` tables at the top are left out."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        if repr(ordered_record(old)) != repr(
            ordered_record(new)
        ):  # not ==: a NaN is the same setting as a NaN
            yield path, old, new
        return
    for name in dict.fromkeys([*new, *old]):
        if path or name not in UNCOMPARED:
            inner = f"{path}.{name}" if path else name
            yield from differences(old.get(name), new.get(name), inner)


def ordered_record(value: PlainValue) -> PlainValue:
    """The same with the keys of all tables in one order: a file may hold them in another."""
    if isinstance(value, dict):
        return {name: ordered_record(item) for name, item in sorted(value.items())}
    return [ordered_record(item) for item in value] if isinstance(value, list) else value


def check_same_run(folder: Path, old: RunRecord, new: RunRecord) -> None:
    """Name the first thing in which the run in the folder differs from this one."""
    for setting, was, now in differences(old, new):
        raise CheckpointError(
            f"{folder} was made with {setting} = {shortened(was)}, now it is {shortened(now)}: "
            "use the old setting, another folder, or overwrite=True."
        )
    change = other_probe(old.get("probe", {}), new.get("probe", {}))
    if change is not None:
        raise CheckpointError(
            f"{folder}: the first step has another {WORDS[change]} than when the run began, so data, "
            "model, loss or optimizer have changed: use the old ones, another folder, or overwrite=True."
        )


def shortened(value: PlainValue) -> str:
    """A value in a few words."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 120 else text[:119] + "…"


def flat(record: Mapping[str, PlainValue], path: str = "") -> dict[str, PlainValue]:
    """A record as one table of dotted names, for people; the tree of modules left out."""
    values: dict[str, PlainValue] = {}
    for name, value in record.items():
        if name == "modules":
            continue
        values |= flat(value, f"{path}{name}.") if isinstance(value, dict) else {f"{path}{name}": value}
    return values


def arguments(folder: str | Path, allow: Iterable[str] = ()) -> dict[str, Any]:
    """Keyword arguments of :func:`torchlift.fit` that made a run: ``fit(model, train, **arguments(out))``.

    The model and the data are the caller's (the record holds their digests). ``allow`` names packages of
    your own that the recipe, optimizer or loss come from; what was given as a lambda cannot be read back.
    """
    record = read_record(Path(folder))
    if record is None or record["kind"] != "fit":
        raise CheckpointError(f"{folder} holds no run of fit.")
    settings = record.get("settings")
    if not isinstance(settings, dict):
        raise CheckpointError(f"{Path(folder) / NAME} holds no settings.")
    encoded = {"recipe": record.get("recipe", {"none": True}), **settings}
    decoded: dict[str, Any] = {}
    for name, value in encoded.items():
        try:
            decoded[name] = decode(value, allow)
        except (CheckpointError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{Path(folder) / NAME}: {name} cannot be read back: {error}") from error
    return decoded
