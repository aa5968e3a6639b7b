"""Verdicts together: as many as hold, no dimension emptied, widths rounded."""

import dataclasses
from collections.abc import Callable

from torchlift.channels.dead_channels import Verdict


def sound(verdicts: list[Verdict], fine: Callable[[list[Verdict]], bool]) -> list[Verdict]:
    """As many of the verdicts as hold together, by halving."""
    if len(verdicts) < 2:
        return verdicts if fine(verdicts) else []
    half = len(verdicts) // 2
    first, second = (part if fine(part) else sound(part, fine) for part in (verdicts[:half], verdicts[half:]))
    return first + second if fine(first + second) else max(first, second, key=len)


def spared(verdicts: list[Verdict]) -> list[Verdict]:
    """No dimension loses all its slices, whatever couplings share it: the first channel stays."""
    left: dict[tuple[str, int], int] = {}
    for verdict in verdicts:
        for member in verdict.coupling.members:
            gone = int(verdict.dead[member.channel].sum())
            left[member.name, member.dim] = left.get((member.name, member.dim), member.size) - gone
    done: list[Verdict] = []
    for verdict in verdicts:
        empty = any(left[m.name, m.dim] == 0 for m in verdict.coupling.members)
        dead = verdict.dead.clone()
        if empty and bool(dead.any()):
            dead[int(dead.nonzero()[0])] = False
            for m in verdict.coupling.members:
                left[m.name, m.dim] += 1
        done.append(dataclasses.replace(verdict, dead=dead))
    return done


def rounded(verdict: Verdict, round_to: int) -> Verdict:
    """Fewer cuts, so that the channels left are a multiple, where they were one."""
    left = verdict.coupling.channels - verdict.cut
    if round_to < 2 or not verdict.cut or verdict.coupling.channels % round_to:
        return verdict
    back = -left % round_to
    dead = verdict.dead.clone()
    dead[dead.nonzero().flatten()[:back]] = False
    why = verdict.why or (f"{back} stay to leave a multiple of {round_to}" if back else "")
    return dataclasses.replace(verdict, dead=dead, why=why)
