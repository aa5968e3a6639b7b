"""What ``doctor`` checks: each check is a line with a verdict and, where it helps, a way out."""

import dataclasses
import importlib.metadata
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import torchlift

EXTRAS = {
    "tune": ("optuna",),
    "report": ("jinja2",),
    "export": ("onnx", "onnxscript", "onnxruntime"),
    "dist": ("lightning-fabric",),
    "data": ("scikit-learn", "pillow"),
    "tensorboard": ("tensorboard",),
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@dataclasses.dataclass(frozen=True)
class HealthCheck:
    """One thing and how it is."""

    name: str
    state: Literal["ok", "missing", "warning", "error"]
    detail: str
    fix: str = ""


def examine(out: Path, data: str | None) -> Iterator[HealthCheck]:
    """All checks, in the order they are shown."""
    yield HealthCheck("torchlift", "ok", f"{torchlift.__version__}, Python {platform.python_version()}")
    yield from torch_checks()
    yield from (extra(name, packages) for name, packages in EXTRAS.items())
    yield writable(out)
    yield data_folder(data)
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    yield HealthCheck(
        "browser", "ok" if browser else "missing", browser or "none; only tests of the report need one"
    )


def torch_checks() -> Iterator[HealthCheck]:
    """torch's build, threads and cores, and torchvision beside it."""
    try:
        import torch
    except Exception as error:  # a broken install may raise anything; a check-up names it and goes on
        yield HealthCheck("torch", "error", f"cannot be imported: {error}", "pip install torch")
        return
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU in use"
    yield HealthCheck("torch", "ok", f"{torch.__version__}, {build}, {device}")
    yield HealthCheck("cores", "ok", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads")
    vision = version("torchvision")
    if vision and not torch.version.cuda:
        what = f"torchvision {vision} with a CPU build of torch: transformers and lightning may not import"
        yield HealthCheck("torchvision", "warning", what, "pip uninstall torchvision")


def extra(name: str, packages: tuple[str, ...]) -> HealthCheck:
    """Whether an extra's packages are there."""
    versions = {package: version(package) for package in packages}
    missing = [package for package, there in versions.items() if there is None]
    if missing:
        return HealthCheck(f"[{name}]", "missing", ", ".join(missing), f"pip install 'torchlift[{name}]'")
    return HealthCheck(
        f"[{name}]", "ok", ", ".join(f"{package} {there}" for package, there in versions.items())
    )


def version(package: str) -> str | None:
    """A package's version, if it is installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def writable(out: Path) -> HealthCheck:
    """Whether runs can be written, and how much room there is."""
    above = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=above):
            free = shutil.disk_usage(above).free / 1e9
    except OSError as error:
        return HealthCheck("out", "error", f"{out}: {error.strerror}", "choose another folder with --out")
    return HealthCheck("out", "ok", f"{out} can be written, {free:.1f} GB free")


def data_folder(folder: str | None) -> HealthCheck:
    """The folder of data that come in files."""
    name = folder or os.environ.get("TORCHLIFT_DATA")
    if not name:
        return HealthCheck(
            "data", "missing", "no folder; built-in digits, iris, … need none", "export TORCHLIFT_DATA=…"
        )
    if not Path(name).expanduser().is_dir():
        return HealthCheck("data", "warning", f"{name} is not a folder", "export TORCHLIFT_DATA=…")
    return HealthCheck("data", "ok", name)
