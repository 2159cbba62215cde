"""Alternating pairs: dibs and another, one right after the other, many times; medians, spreads, and the ratio of each pair."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from servers.progress import say

from peers.grounds import Grounds
from peers.measures import Figures, Measure, Size, drain
from peers.peer import DIBS, PEERS, RAW, Peer

KINDS = ("postgres", "mysql", "mariadb", "sqlite")


@dataclass(frozen=True)
class Pair:
    """Who is compared with whom."""

    ours: Peer
    theirs: Peer


@dataclass(frozen=True)
class Spread:
    """The median of some figures, the least and the greatest."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> Spread:
        return cls(statistics.median(figures), min(figures), max(figures))


@dataclass(frozen=True)
class Row:
    """One line of the results: a figure of both, pair by pair."""

    measure: Measure
    unit: str
    amount: int
    pair: Pair
    database: str
    figures: tuple[tuple[float, float], ...]

    @property
    def our_spread(self) -> Spread:
        return Spread.of([ours for ours, _ in self.figures])

    @property
    def their_spread(self) -> Spread:
        return Spread.of([theirs for _, theirs in self.figures])

    @property
    def ratio(self) -> Spread | None:
        """Ours to theirs, of each pair. None where nothing is to be divided by."""
        ratios = [ours / theirs for ours, theirs in self.figures if theirs]
        return Spread.of(ratios) if len(ratios) == len(self.figures) else None

    def plain(self) -> dict[str, Any]:
        """Return it for `--json`."""
        ratio = self.ratio
        return {
            "measure": self.measure.name,
            "unit": self.unit,
            "better": self.measure.better,
            "amount": self.amount,
            "database": self.database,
            "ours": {"name": self.pair.ours.name, **vars(self.our_spread)},
            "theirs": {
                "name": self.pair.theirs.name,
                **vars(self.their_spread),
                "versions": self.pair.theirs.pins,
                "settings": self.pair.theirs.note,
            },
            "ratio": vars(ratio) if ratio else None,
            "pairs": self.figures,
        }


def pairs_of(measure: Measure, kinds: Sequence[str], only: Sequence[str]) -> list[Pair]:
    """Return who is compared in a measure, on these kinds of database; `only` names the others that are wanted."""
    everyone = (*PEERS, RAW)
    if measure.name == "raw":
        pairs = [Pair(DIBS.on(kind), RAW.on(kind)) for kind in KINDS]
    elif measure.name == "async":
        pairs = [Pair(DIBS.with_settings("dibs, async tasks", tasks="async"), DIBS.with_settings("dibs, sync tasks"))]
    elif measure.name == "one":
        ours = DIBS.with_settings("dibs, concurrency 1", concurrency=1, ahead=0)
        pairs = [
            Pair(ours, peer.with_settings(concurrency=1))
            for peer in everyone
            if measure.name in peer.measures
        ]  # fmt: skip
    else:
        pairs = [Pair(_beside(peer), peer) for peer in everyone if measure.name in peer.measures]
    if measure.name == "bulk":
        pairs += [Pair(DIBS.on(kind), RAW.on(kind)) for kind in KINDS if kind != RAW.kind]
    return [pair for pair in pairs if pair.ours.kind in kinds and (not only or pair.theirs.name in only)]


def _beside(peer: Peer) -> Peer:
    """Return dibs on the same database at the same durability; beside what is on Redis, on PostgreSQL."""
    if peer.kind == "redis":
        return DIBS
    if "synchronous" in peer.settings:
        return DIBS.on(peer.kind).with_settings(synchronous=peer.settings["synchronous"])
    return DIBS.on(peer.kind)


def run(grounds: Grounds, measure: Measure, pair: Pair, size: Size, pairs: int) -> list[Row]:
    """Measure both in turns; return a row for each figure. Raises Unavailable or Failed."""
    amount = measure.amount(size)
    if measure.once is drain:  # both get as many jobs as the slower one is given
        amount = min(amount, pair.ours.most, pair.theirs.most)
    rounds: list[tuple[Figures, Figures]] = []
    for number in range(pairs):
        # The second of a pair finds a machine that the first has warmed up or worn out: they change places.
        one, other = (pair.ours, pair.theirs) if number % 2 == 0 else (pair.theirs, pair.ours)
        first, second = measure.once(grounds, one, amount), measure.once(grounds, other, amount)
        ours, theirs = (first, second) if one is pair.ours else (second, first)
        rounds.append((ours, theirs))
        told = f"{_told(pair.ours, ours)}; {_told(pair.theirs, theirs)}"
        say(f"{measure.name}, pair {number + 1} of {pairs}: {told}")
    return [
        Row(
            measure,
            unit,
            amount,
            pair,
            grounds.version(pair.theirs),
            tuple((ours[unit], theirs[unit]) for ours, theirs in rounds),
        )
        for unit in rounds[0][0]
    ]


def _told(peer: Peer, figures: Figures) -> str:
    return f"{peer.name} " + ", ".join(
        f"{value:,.{0 if value >= 100 else 2}f} {unit}" for unit, value in figures.items()
    )
