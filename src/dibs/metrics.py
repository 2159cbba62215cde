"""Metrics as data: what is measured, under which name and of what. How they are written out is said in `exposition`.

Names and units are those of Prometheus: base units, and counters that end with `_total`.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal

import msgspec

#: Upper bounds (seconds) of the histograms of how long a due job waited, and of how long its run took.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0)


class Buckets(msgspec.Struct, frozen=True):
    """A histogram as it was read: how many values were at most each of `bounds`, then how many there are at all."""

    bounds: tuple[float, ...]
    at_most: tuple[int, ...]
    sum: float


class Sample(msgspec.Struct, frozen=True):
    """One number, or histogram, and what it is of."""

    labels: dict[str, str]
    value: float | Buckets


class Family(msgspec.Struct, frozen=True):
    """All numbers of one name."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: list[Sample]


class Histogram:
    """Counts values by their size. One thread observes; whoever reads gets what was observed until then."""

    __slots__ = ("_counts", "_sum")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value, in seconds; one that is equal to a bound is at most that bound."""
        self._counts[bisect_left(BOUNDS, value)] += 1
        self._sum += value

    def read(self) -> Buckets:
        """Return what was observed until now.

        >>> histogram = Histogram()
        >>> histogram.observe(0.005)
        >>> histogram.read().at_most[0], histogram.read().at_most[-1]
        (1, 1)
        """
        counts, total, at_most = list(self._counts), 0, []
        for count in counts:
            total += count
            at_most.append(total)
        return Buckets(BOUNDS, tuple(at_most), self._sum)


def labelled(families: list[Family], **labels: str) -> list[Family]:
    """Return families whose samples have these labels, too."""
    return [
        msgspec.structs.replace(
            family, samples=[Sample({**sample.labels, **labels}, sample.value) for sample in family.samples]
        )
        for family in families
    ]


def merged(parts: list[list[Family]]) -> list[Family]:
    """Return one family for each name, with the samples of all parts."""
    found: dict[str, Family] = {}
    for family in (family for part in parts for family in part):
        if family.name in found:
            found[family.name].samples.extend(family.samples)
        else:
            found[family.name] = msgspec.structs.replace(family, samples=list(family.samples))
    return list(found.values())
