"""Settings of a run: one TOML file, flags on top, checked by pydantic before torch is imported."""

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge
from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from torchlift.cli.flags import Count, Positive, RunFlags, Training
from torchlift.cli.pairs import TomlTable, merged_tables, parse_pairs, unknown_name

TABLES = ("arg", "set", "opt")
Strings = Annotated[
    tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(RunFlags):
    """Everything fit, compare, tune and auto can be told; None means the library's own default."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    arg: TomlTable = dataclasses.field(default_factory=TomlTable)
    recipe: Strings = ()
    set: TomlTable = dataclasses.field(default_factory=TomlTable)
    opt: TomlTable = dataclasses.field(default_factory=TomlTable)
    tensorboard: bool = False
    seeds: Count | tuple[int, ...] | None = None
    trials: Count | None = None
    folds: Annotated[int, Ge(2)] | None = None
    workers: Count | None = None
    space: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    tune: Annotated[int, Ge(0)] | None = None
    time: str | Positive | None = None
    jobs: Annotated[int, Ge(0)] | None = None
    bytes: str | Positive | None = None
    latency: Positive | None = None
    accuracy: float | None = None
    minutes: Positive | None = None

    def chosen(self) -> TomlTable:
        """The settings that are not at their defaults."""
        return {
            name: value for name, value in dataclasses.asdict(self).items() if is_set(value) and value != {}
        }

    def need(self, name: Literal["model", "data"]) -> str:
        """A setting without which nothing can start."""
        value: str | None = getattr(self, name)
        if value is None:
            raise ValueError(f"no {name} given: pass --{name}, or set {name} in the --config file")
        return value


def read_config(flags: Training, **more: Any) -> RunConfig:
    """The file named by ``--config``, with the flags on top."""
    below = read_file(Path(flags.config)) if flags.config else {}
    flags_given = {name: value for name, value in (flags_set(flags) | more).items() if is_set(value)}
    for name in TABLES:
        if name in flags_given:
            flags_given[name] = parse_pairs(f"--{name}", flags_given[name])
    if "space" in flags_given:
        flags_given["space"] = dict(split_range(pair) for pair in flags_given["space"])
    return validated(merged_tables(below, flags_given), None)


def is_set(value: Any) -> bool:
    """Whether a flag was there: 0 is a value, None, False and nothing repeated are none."""
    return value is not None and value is not False and value != ()


def split_range(pair: str) -> tuple[str, str]:
    """``lr=1e-4:1e-1:log`` → its name and its range."""
    name, equals, text = pair.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"--space takes key=low:high[:log] or key=a,b,c, got {pair!r}")
    return name.strip(), text.strip()


def flags_set(flags: Training) -> TomlTable:
    """The flags that are settings."""
    names = (field.name for field in dataclasses.fields(flags))
    return {name: getattr(flags, name) for name in names if name not in ("config", "json", "debug")}


def read_file(path: Path) -> TomlTable:
    """A TOML file whose every key and value is right, or an error that names both."""
    try:
        content = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not TOML: it is not UTF-8 text") from error
    validated(content, path)
    return content


def validated(content: Mapping[str, Any], path: Path | None) -> RunConfig:
    """The settings, or one line on the first that is wrong; without a file the flags are to blame."""
    try:
        return TypeAdapter(RunConfig).validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    key = ".".join(str(step) for step in first["loc"] if not isinstance(step, int))
    if first["type"] == "unexpected_keyword_argument":
        raise unknown_name(f"{path}: key", key, [field.name for field in dataclasses.fields(RunConfig)])
    where = f"{path}: {key}" if path else f"--{key.split('.')[0].replace('_', '-')}"
    raise ValueError(f"{where}: {first['msg'][0].lower()}{first['msg'][1:]}, got {first['input']!r}")
