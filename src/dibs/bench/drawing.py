"""Draws the comparison of ways to claim into an .svg or .png file, with matplotlib."""

from __future__ import annotations

import os
from pathlib import Path

from dibs.bench.comparison import Comparison, load_name
from dibs.errors import ConfigurationError

KINDS = (".svg", ".png")


def check(file: str) -> None:
    """Raise ConfigurationError, before anything is measured, if this can't be drawn into."""
    path = Path(file)
    if path.suffix.lower() not in KINDS:
        raise ConfigurationError(f"--plot takes a file that ends with {' or '.join(KINDS)}, not {path.name}")
    if not path.absolute().parent.is_dir() or not os.access(path.absolute().parent, os.W_OK) or path.is_dir():
        raise ConfigurationError(f"--plot can't write {file}: there is no such directory, or it is not yours to write")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ConfigurationError('--plot needs the package matplotlib: pip install "dibs[bench]"') from error


def draw(comparison: Comparison, file: str) -> None:
    """Draw a bar for each way under each load, with its longest waits and what went wrong beside it."""
    from matplotlib.figure import Figure

    holds = list(dict.fromkeys(outcome.hold_ms for outcome in comparison.outcomes))
    figure = Figure(figsize=(9, 1.2 + 0.5 * len(comparison.outcomes)), layout="constrained")
    figure.suptitle(f"{comparison.server.version}: claiming rows over {comparison.connections} connections")
    for panel, hold in zip(figure.subplots(len(holds), squeeze=False)[:, 0], holds, strict=True):
        outcomes = [outcome for outcome in comparison.outcomes if outcome.hold_ms == hold][::-1]
        bars = panel.barh([each.way for each in outcomes], [each.rows_per_second for each in outcomes], color="#4878a8")
        labels = []
        for each in outcomes:
            wrong = each.deadlocks + each.timeouts
            label = f" {each.rows_per_second:,.0f}/s, wait p99 {each.wait_p99_ms:.1f} ms, {each.tries:.1f} tries"
            label += f", {wrong:,} errors" * bool(wrong) + f", {each.duplicates:,} duplicates" * bool(each.duplicates)
            labels.append(label)
        panel.bar_label(bars, labels, fontsize=8)
        panel.set_title(load_name(hold), fontsize=10)
        panel.set_xlabel("rows a second")
        panel.margins(x=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(file)
