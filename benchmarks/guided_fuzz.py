"""Coverage-guided fuzzing of everything that reads a file: packed models, checkpoints, records, arrays.

    pip install 'torchlift[fuzz]'
    python benchmarks/guided_fuzz.py [--seconds 60] [--targets load checkpoint record npz]

Each target (``fuzz_targets.py``) runs under atheris (libFuzzer) in a process of its own with little memory,
from the corpus in ``tests/corpus/<target>`` and the seeds. Of the inputs that reached new code, some of
every size go into the corpus, up to 40 a target; ``tests/train/test_fuzz.py`` replays them. An error that is
not ours, a crash, a hang or too much memory is a finding: its input is kept as ``found-*``, and the exit
code is 1. Counts go to ``results/guided_fuzz.json``.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parents[1] / "tests" / "corpus"
RESULTS = Path(__file__).parent / "results" / "guided_fuzz.json"
TARGETS = ("load", "checkpoint", "record", "npz")
KEPT = 40
BOUNDS = ["-max_len=4096", "-timeout=20", "-rss_limit_mb=4096", "-print_final_stats=1"]


def inside(target: str, options: list[str]) -> None:
    """The process of one target: atheris takes it over."""
    import atheris

    with atheris.instrument_imports(
        include=["torchlift", "tomllib", "json", "zipfile"], enable_loader_override=False
    ):
        from fuzz_targets import TARGETS as READERS
        from fuzz_targets import seeds
    reader = READERS[target]
    for data in seeds()[target]:
        reader(data)  # what is loaded at first use is no input's fault

    def one(data: bytes) -> None:
        reader(data)

    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()


def fuzzed(target: str, seconds: int) -> dict[str, Any]:
    """One target: what was done, what was found."""
    from fuzz_targets import seeds

    kept = CORPUS / target
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        first, grown = Path(folder) / "first", Path(folder) / "grown"
        first.mkdir()
        grown.mkdir()
        for number, data in enumerate(seeds()[target]):
            (first / f"seed{number}").write_bytes(data)
        ends = [f"-max_total_time={seconds}", f"-artifact_prefix={folder}/found-"]
        said = run(target, [*BOUNDS, *ends, *map(str, (grown, kept, first))])
        findings = sorted(Path(folder).glob("found-*"))
        for path in findings:
            (kept / path.name).write_bytes(path.read_bytes())
        new = sorted(grown.iterdir(), key=lambda path: path.stat().st_size)
        room = max(0, KEPT - len(list(kept.iterdir())))
        for path in new[:: max(1, -(-len(new) // room))] if room else []:
            (kept / path.name[:16]).write_bytes(path.read_bytes())
    covered = re.findall(r"cov: (\d+)", said)
    runs = re.findall(r"stat::number_of_executed_units:\s*(\d+)", said)
    peak = re.findall(r"stat::peak_rss_mb:\s*(\d+)", said)
    return {
        "target": target,
        "seconds": seconds,
        "runs": int(runs[-1]) if runs else 0,
        "edges at first": int(covered[0]) if covered else 0,
        "edges": int(covered[-1]) if covered else 0,
        "peak MiB": int(peak[-1]) if peak else 0,
        "corpus": len(list(kept.iterdir())),
        "found": [path.name for path in findings] or ([] if runs else [said[-800:]]),
    }


def run(target: str, options: list[str]) -> str:
    """What libFuzzer says."""
    command = [sys.executable, __file__, "--inside", target, *options]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    return done.stdout + done.stderr


def main() -> int:
    """Fuzz, and write ``results/guided_fuzz.json``."""
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], sys.argv[3:])
        return 0
    parser = argparse.ArgumentParser(description="coverage-guided fuzzing of the readers")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--targets", nargs="+", default=TARGETS, choices=TARGETS)
    options = parser.parse_args()
    rows: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for target in options.targets:
        rows[target] = fuzzed(target, options.seconds)
        print(json.dumps(rows[target]), flush=True)
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row["found"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
