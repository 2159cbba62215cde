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
            _curve(times, f"{op}, p99", ends, [each["ops"].get(op, {}).get("p99") for each in slices])
        times.set(title=f"{haul.database}\nsnapshot {'held' if haul.held else 'not held'}", ylabel="ms", yscale="log")
        times.legend(fontsize="small")
        for what in ("backlog", "dead", "log_bytes_per_job"):
            # Of a logarithm there is no zero.
            heights = [None if each[what] is None else max(each[what], 1) for each in slices]
            _curve(rest, what.replace("_", " "), ends, heights)
        rest.set(xlabel="seconds", yscale="log")
        rest.legend(fontsize="small")
    figure.savefig(name)


def _curve(axes: Any, label: str, ends: Sequence[float], heights: Sequence[float | None]) -> None:
    """Draw what is known of a curve."""
    known = [(end, height) for end, height in zip(ends, heights, strict=True) if height is not None]
    if known:
        axes.plot(*zip(*known, strict=True), marker=".", label=label)
