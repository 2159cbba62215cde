"""The results as a table that a person can read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from peers.contest import Row, Spread


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of each measure, a blank line between them."""
    tables: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        tables.setdefault((row.measure.title, row.unit), []).append(row)
    for (title, unit), table in tables.items():
        pairs = max(len(row.figures) for row in table)
        names = max(len(row.pair.theirs.name) for row in table)
        yield ""
        yield f"{title}: {unit}, {table[0].measure.better} is better; median (least–greatest) of {pairs} pairs"
        of = "jobs" if "jobs" in unit or "ms" in unit else "seconds"
        yield f"  {'beside':{names}} {of:>8} {'dibs':>26} {'the other':>26} {'dibs / the other':>20}  on"
        for row in table:
            ratio = spread(row.ratio, digits=2) if row.ratio else "–"
            yield (
                f"  {row.pair.theirs.name:{names}} {row.amount:>8,} {spread(row.our_spread):>26} "
                f"{spread(row.their_spread):>26} {ratio:>20}  {row.database}"
            )


def spread(figures: Spread, *, digits: int | None = None) -> str:
    """Write a spread with as many digits as mean something.

    >>> spread(Spread(11363.6, 7864.0, 14864.2))
    '11,364 (7,864–14,864)'
    >>> spread(Spread(0.57, 0.5, 0.61), digits=2)
    '0.57 (0.50–0.61)'
    """
    if digits is None:
        digits = 0 if figures.median >= 100 else 1 if figures.median >= 10 else 2
    return f"{figures.median:,.{digits}f} ({figures.least:,.{digits}f}–{figures.greatest:,.{digits}f})"
