"""The results as tables that a person can read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from peers.contest import Spread
from peers.report import spread

from health.haul import OPS, Haul
from health.late import Late

NAMES = ("all claims", *OPS.values())


def lines(hauls: list[Haul], lates: list[Late]) -> Iterator[str]:
    """Yield each haul slice by slice, then the late commits."""
    for haul in hauls:
        yield from _haul(haul)
    for late in lates:
        yield from _late(late)


def _haul(haul: Haul) -> Iterator[str]:
    yield ""
    yield f"{haul.database}, snapshot {'held' if haul.held else 'not held'}: p50 / p99 in ms, slice by slice"
    head = f"  {'phase':6} {'s':>5} {'jobs/s':>7} " + " ".join(f"{name:>15}" for name in NAMES)
    yield f"{head} {'backlog':>8} {'dead':>10} {'log B/job':>9} {'commits/job':>11}"
    for piece in (each.plain() for each in haul.slices):
        times = " ".join(f"{_times(piece['ops'].get(name)):>15}" for name in NAMES)
        yield (
            f"  {piece['phase']:6} {piece['seconds']:5.1f} {piece['jobs'] / piece['seconds']:7,.0f} {times} "
            f"{max(piece['backlog'], 0):8,} {_whole(piece['dead']):>10} {_whole(piece['log_bytes_per_job']):>9} "
            f"{piece['commits_per_job'] if piece['commits_per_job'] is not None else '–':>11}"
        )
    ratios = ", ".join(f"{name} {ratio}" for name, ratio in haul.ratios().items() if ratio is not None)
    yield f"  p99 in the last slice to the first, at the same rate: {ratios}"


def _times(op: dict[str, Any] | None) -> str:
    return f"{op['p50']:.1f} / {op['p99']:.1f}" if op else "–"


def _whole(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _late(late: Late) -> Iterator[str]:
    yield ""
    yield f"{late.database}, late commits: from the commit to the job's first line, in ms; median (least–greatest)"
    names = max(len(way.name) for way in late.runs)
    yield f"  {'claimed':{names}} {'jobs':>8} {'p50':>24} {'p99':>24} {'left':>6}"
    for way, runs in late.runs.items():
        p50, p99 = (Spread.of([getattr(run, name) * 1e3 for run in runs]) for name in ("p50", "p99"))
        jobs, left = sum(run.jobs for run in runs), sum(run.left for run in runs)
        yield f"  {way.name:{names}} {jobs:8,} {spread(p50):>24} {spread(p99):>24} {left:6,}"
    yield f"  p99 with the cursor to p99 without: {spread(late.ratio(), digits=2)}; where snapshots were held: {late.dead:,} dead rows"
