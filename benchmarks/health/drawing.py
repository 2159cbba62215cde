"""The long haul as curves: what claims, expiry, looking for lanes and probes take over time, and what is left lying."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from health.haul import OPS, Haul

SHOWN = ("all claims", "settle", "expiry", "lanes", "probe")
assert {*SHOWN[1:]} <= {*OPS.values()}


def drawable(name: str) -> str:
    """Return a file's name if it can be drawn into; for argparse, before anything is measured."""
    if Path(name).suffix not in (".svg", ".png", ".pdf"):
        raise argparse.ArgumentTypeError(f"{name}: end its name in .svg, .png or .pdf")
    try:
        import matplotlib as _  # noqa: F401
    except ImportError:
        raise argparse.ArgumentTypeError("drawing takes matplotlib: pip install matplotlib") from None
    return name


def draw(hauls: Sequence[Haul], name: str) -> None:
    """Draw them side by side into a file."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(6 * len(hauls), 8), layout="constrained")
    rows: Any = figure.subplots(2, len(hauls), squeeze=False, sharex="col")
    for haul, times, rest in zip(hauls, *rows, strict=True):
        slices = [each.plain() for each in haul.slices]
        ends = list(accumulate(each["seconds"] for each in slices))
        for op in SHOWN:
            points = [
                (end, each["ops"][op]["p99"]) for end, each in zip(ends, slices, strict=True) if op in each["ops"]
            ]
            if points:
                times.plot(*zip(*points, strict=True), marker=".", label=f"{op}, p99")
        times.set(title=f"{haul.database}\nsnapshot {'held' if haul.held else 'not held'}", ylabel="ms", yscale="log")
        times.legend(fontsize="small")
        for what in ("backlog", "dead", "log_bytes_per_job"):
            if all(each[what] is not None for each in slices):
                rest.plot(ends, [max(each[what], 1) for each in slices], marker=".", label=what.replace("_", " "))
        rest.set(xlabel="seconds", yscale="log")
        rest.legend(fontsize="small")
    figure.savefig(name)
