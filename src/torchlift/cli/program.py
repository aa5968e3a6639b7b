"""``torchlift VERB``: the program, its verbs, and what becomes of errors."""

import sys
from collections.abc import Sequence

from cyclopts import App, Parameter

import torchlift
from torchlift.cli.boundary import guarded
from torchlift.cli.verbs import (
    auto,
    compare,
    compress,
    demo,
    deploy,
    doctor,
    fit,
    invert,
    report,
    reproduce,
    tune,
)

INTRO = """Train a larger, smoother problem; bring the solution back to the small network.

    torchlift demo                             # a minute or two, no download
    torchlift fit --model mlp --data digits    # one run, with a report
    torchlift compare --model mlp --data digits \\
        --recipe neural-lifting --set where=linear1
"""

OUTRO = """Every verb takes --json (machine-readable output, nothing else on stdout) and --debug (tracebacks).

Exit codes: 0 done · 1 the run failed · 2 bad input · 130 Ctrl-C · 143 SIGTERM."""


def build_program() -> App:
    """The program with all its verbs."""
    app = App(
        name="torchlift",
        help=INTRO,
        help_epilogue=OUTRO,
        help_format="plaintext",
        version=torchlift.__version__,
        default_parameter=Parameter(negative=(), show_default=False),
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    modules = (demo, fit, compress, compare, auto, tune, invert, deploy, report, reproduce, doctor)
    verbs = [verb for module in modules for verb in module.VERBS]
    for order, (function, name, example) in enumerate(verbs):
        app.command(function, name=name, help_epilogue=example, sort_key=order)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program on the arguments (those of the process by default); the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return guarded(build_program(), words)
