"""What is installed: the package and its files, nothing of the repository around it."""

import zipfile
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parent.parent


def test_the_wheel_holds_the_package_alone(tmp_path):
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0].split("-")[0] for name in names} == {"torchlift"}
    files = {"cli/reproduction.py", "py.typed", "report/templates/page.html"}
    assert {f"torchlift/{file}" for file in files} <= names
    assert not [name for name in names if "papers" in name or "bench" in name]
