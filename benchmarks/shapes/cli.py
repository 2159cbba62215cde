"""What the shape of a queue costs: ratios of drains on PostgreSQL, in alternating pairs, every job accounted for.

    scripts/setup dev, then
    .venv/bin/python benchmarks/shapes                              # all of it: half an hour or more, on a quiet machine
    .venv/bin/python benchmarks/shapes lanes workers --pairs 3
    .venv/bin/python benchmarks/shapes crowd --many 100000 --failed 10000

A job that is lost, run twice or in a state in which it must not be makes the exit code 1. So does --strict where a
median is not what it has to be.

measures:
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ours.command import end_like_ctrl_c, machine, parsed, parser, positive
from peers.contest import Spread
from peers.grounds import Grounds
from peers.process import Failed
from peers.report import spread
from servers.errors import Unavailable
from servers.progress import say

from shapes.field import Field
from shapes.measures import MEASURES, Measure, Size


@dataclass(frozen=True)
class Row:
    """A measure's figures, pair by pair."""

    measure: Measure
    pairs: Sequence[tuple[float, float]]

    @property
    def compared(self) -> Spread:
        return Spread.of([self.measure.compared(*pair) for pair in self.pairs])

    @property
    def holds(self) -> bool:
        return self.measure.holds(self.compared.median)

    def plain(self) -> dict[str, Any]:
        measure = self.measure
        return {
            "measure": measure.name,
            "title": measure.title,
            "unit": measure.unit,
            measure.ours: vars(Spread.of([ours for ours, _ in self.pairs])),
            measure.theirs: vars(Spread.of([theirs for _, theirs in self.pairs])),
            "difference" if measure.difference else "ratio": vars(self.compared),
            "at most" if measure.most else "at least": measure.bound,
            "holds": self.holds,
            "pairs": self.pairs,
        }

    def lines(self) -> Iterator[str]:
        measure = self.measure
        yield f"{measure.title}: {measure.unit}; median (least–greatest) of {len(self.pairs)} pairs"
        for name, figures in zip((measure.ours, measure.theirs), zip(*self.pairs, strict=True), strict=True):
            yield f"  {name:12} {spread(Spread.of(figures)):>26}"
        bound = f"at {'most' if measure.most else 'least'} {measure.bound:g}"
        what = "difference" if measure.difference else "ratio"
        yield f"  {what:12} {spread(self.compared, digits=2):>26}  {bound}: {'holds' if self.holds else 'does not hold'}"


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and return the exit code."""
    asked = _asked(arguments)
    end_like_ctrl_c()
    rows: list[Row] = []
    failed = False
    try:
        with Grounds(asked.given) as grounds, Field(grounds) as field:
            for measure in MEASURES:
                if measure.name in asked.measures:
                    failed |= not _measured(field, measure, asked, rows)
    except Unavailable as unavailable:
        say(f"there is no PostgreSQL to be had: {unavailable.reason}")
        failed = True
    except KeyboardInterrupt:
        say("stopped; this is what was measured so far")
        failed = True
    if asked.json:
        print(json.dumps({"machine": machine(), "rows": [row.plain() for row in rows]}, indent=1))
    else:
        print(", ".join(f"{name} {value}" for name, value in machine().items()))
        for row in rows:
            print("", *row.lines(), sep="\n")
    return int(failed or (asked.strict and not all(row.holds for row in rows)))


def _measured(field: Field, measure: Measure, asked: argparse.Namespace, rows: list[Row]) -> bool:
    """Measure it in pairs, adding a row; return whether all jobs were accounted for."""
    size = Size(asked.jobs, asked.few, asked.many, asked.failed, asked.queues, asked.priorities, asked.workers)
    pairs: list[tuple[float, float]] = []
    try:
        for number in range(asked.pairs):
            ours, theirs = measure.pair(field, size, number % 2 == 1)
            pairs.append((ours, theirs))
            told = f"{measure.ours} {ours:,.1f}, {measure.theirs} {theirs:,.1f} {measure.unit}"
            say(f"{measure.name}, pair {number + 1} of {asked.pairs}: {told}")
    except Failed as failure:
        say(f"{measure.name}: {failure}")
        return False
    rows.append(Row(measure, pairs))
    return True


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    names = [measure.name for measure in MEASURES]
    titles = "\n".join(f"    {measure.name:9} {measure.title}" for measure in MEASURES)
    made = parser("shapes", (__doc__ or "") + titles, names)
    for name, default, text in (
        ("--pairs", 7, "alternating pairs"),
        ("--jobs", 20_000, "jobs in a drain; five times as many for many workers, ten times for memory"),
        ("--few", 10_000, "due jobs in a short queue, and in the crowd"),
        ("--many", 1_000_000, "jobs in a long queue; scheduled ones and done ones in the crowd"),
        ("--failed", 100_000, "failed jobs in the crowd"),
        ("--queues", 50, "queues"),
        ("--priorities", 3, "priorities in each queue"),
        ("--workers", 20, "worker processes"),
    ):
        made.add_argument(name, type=positive, default=default, help=f"{text} ({default})")
    made.add_argument("--strict", action="store_true", help="end with 1 where a median is not what it has to be")
    return parsed(made, arguments, names)
