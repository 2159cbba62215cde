"""How dibs does when it runs for long, and while somebody holds a snapshot so that nothing dead can be cleaned away.

    scripts/setup dev, then
    .venv/bin/python benchmarks/health                                # about three minutes
    .venv/bin/python benchmarks/health --minutes 10 --jobs 1000000    # half an hour
    .venv/bin/python benchmarks/health haul --minutes 60 --jobs 4500000 --snapshot held --plot hour.svg
    .venv/bin/python benchmarks/health late --pairs 7

measures:
    haul   two workers, jobs at a rate, then as fast as it goes, then at the rate again: what ops take, slice by slice
    late   six producers whose transactions stay open up to 0.3 s: how long their jobs wait, beside claims without a cursor

Servers are throwaway ones with each commit on the disk. A job that is lost or run twice makes the exit code 1.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from ours.command import above_zero, end_like_ctrl_c, machine, parsed, parser, positive
from peers.contest import KINDS
from peers.grounds import Grounds
from peers.process import Failed
from servers.errors import Unavailable
from servers.progress import say

from health.drawing import draw, drawable
from health.haul import Haul, Plan, haul
from health.late import Late, late
from health.report import lines

MEASURES = ("haul", "late")

#: A slice is a sixth of the time, and at most this long (seconds).
LONGEST_SLICE = 60.0


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and return the exit code."""
    asked = _asked(arguments)
    end_like_ctrl_c()
    hauls: list[Haul] = []
    lates: list[Late] = []
    failed = False
    with Grounds(asked.given) as grounds:
        try:
            for kind in asked.kind or ["postgres"]:
                failed |= _measure(grounds, kind, asked, hauls, lates)
        except KeyboardInterrupt:
            say("stopped; this is what was measured so far")
            failed = True
    if asked.json:
        found = {"haul": [each.plain() for each in hauls], "late": [each.plain() for each in lates]}
        print(json.dumps({"machine": machine(), **found}, indent=1))
    else:
        print(", ".join(f"{name} {value}" for name, value in machine().items()))
        for line in lines(hauls, lates):
            print(line)
    if asked.plot and hauls:
        draw(hauls, asked.plot)
        say(f"drawn into {asked.plot}")
    return int(failed)


def _measure(grounds: Grounds, kind: str, asked: argparse.Namespace, hauls: list[Haul], lates: list[Late]) -> bool:
    """Measure on one kind of database; return whether something failed."""
    length = asked.slice or min(asked.minutes * 60 / 6, LONGEST_SLICE)
    plan = Plan(asked.rate, asked.minutes, asked.jobs, length, asked.warm)
    try:
        if "haul" in asked.measures:
            for held in {"both": (False, True), "held": (True,), "none": (False,)}[asked.snapshot]:
                hauls.append(haul(grounds, kind, plan, held=held))
        if "late" in asked.measures:
            if kind == "sqlite":
                say("late: SQLite has one writer at a time, so that nobody's commit is late: left out")
            else:
                lates.append(late(grounds, kind, seconds=asked.late_seconds, dead=asked.dead, pairs=asked.pairs))
    except Unavailable as unavailable:
        say(f"{kind} is left out: {unavailable.reason}")
    except Failed as failure:
        say(f"{kind}: {failure}")
        return True
    return False


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    made = parser("health", __doc__ or "", MEASURES)
    made.add_argument("--kind", action="append", choices=KINDS, help="on this database (postgres); repeatable")
    made.add_argument("--minutes", type=above_zero, default=0.5, help="for how long jobs are offered at the rate (0.5)")
    made.add_argument("--rate", type=above_zero, default=1_000, help="jobs offered per second (1000)")
    made.add_argument("--jobs", type=positive, default=120_000, help="jobs in all, the flood included (120000)")
    made.add_argument("--warm", type=above_zero, default=3.0, help="seconds before the first slice (3)")
    made.add_argument("--slice", type=above_zero, help="seconds (a sixth of the minutes, 60 at most)")
    made.add_argument(
        "--snapshot", choices=("both", "held", "none"), default="both", help="without one, with one (both)"
    )
    made.add_argument("--late-seconds", type=above_zero, default=6.0, help="for how long commits are late (6)")
    made.add_argument(
        "--dead", type=positive, default=400_000, help="dead rows under the late commits' snapshot (400000)"
    )
    made.add_argument("--pairs", type=positive, default=1, help="how often the late commits are measured (1)")
    made.add_argument("--plot", type=drawable, metavar="FILE", help="draw the haul into this file (.svg, .png, .pdf)")
    return parsed(made, arguments, MEASURES)
