"""The results as a table that a person can read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from peers.contest import Row, Spread


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of each measure, a blank line between them."""
    for (title, unit), group in groupby(rows, key=lambda row: (row.title, row.unit)):
        table = list(group)
        better = "more is better" if table[0].better == "more" else "less is better"
        yield ""
        yield f"{title}: {unit}, {better}; median (least–greatest) of {table[0].pairs} pairs"
        names = max(len(row.theirs) for row in table)
        yield f"  {'beside':{names}}  {'dibs':>26}  {'the other':>26}  {'dibs / the other':>18}  database"
        for row in table:
            ratio = f"{spread(row.ratio, digits=2)}" if row.ratio else "–"
            yield (
                f"  {row.theirs:{names}}  {spread(row.our_spread):>26}  {spread(row.their_spread):>26}  {ratio:>18}"
                f"  {row.database}"
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
