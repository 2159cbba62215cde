"""What the comparison of ways to claim has found: as JSON, and for a person to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from dibs.bench.figures import Machine, Server
from dibs.bench.limits import Limit
from dibs.bench.report import head

#: Waits are worth a word where they are so many times as long as the shortest, and at least so long (ms).
LONG = 5.0
LONG_MS = 5.0


class Outcome(msgspec.Struct):
    """How one way did under one load. `batch` rows are asked for by each claim. `claims` are transactions, `rows` what
    they took. `tries` is how many each claim
    took at the mean, those in vain with it. `wait_…_ms`: from wanting a row until having it. `deadlocks` and
    `timeouts` were rolled back and tried again. `duplicates` are rows that two claims both had."""

    way: str
    hold_ms: float
    batch: int
    claims: int
    rows: int
    seconds: float
    rows_per_second: float
    of_best: float
    wait_p50_ms: float
    wait_p99_ms: float
    tries: float
    deadlocks: int
    timeouts: int
    duplicates: int
    cpu_share: float
    limit: Limit


class Way(msgspec.Struct):
    """One way to claim, and where it wins and loses by these figures."""

    name: str
    about: str
    wins: list[str]
    loses: list[str]


class Comparison(msgspec.Struct):
    """All of it. `processes` are those that the connections were spread over."""

    server: Server
    machine: Machine
    connections: int
    processes: int
    ways: list[Way]
    outcomes: list[Outcome]
    note: str = ""
    redis: str | None = None


def load_name(hold_ms: float) -> str:
    return f"claims that hold their row for {hold_ms:g} ms" if hold_ms else "claims that are over at once"


def judge_ways(abouts: Sequence[tuple[str, str]], outcomes: Sequence[Outcome]) -> list[Way]:
    """Say of each way where it wins and where it loses."""
    return [Way(name, about, *_wins_and_losses(name, outcomes)) for name, about in abouts]


def _wins_and_losses(way: str, outcomes: Sequence[Outcome]) -> tuple[list[str], list[str]]:
    wins, loses = [], []
    for outcome in (each for each in outcomes if each.way == way):
        rivals = [each for each in outcomes if each.hold_ms == outcome.hold_ms]
        equals = [each for each in rivals if each.batch == outcome.batch]
        load = f"at {outcome.hold_ms:g} ms" if outcome.hold_ms else "short"
        shortest = min(each.wait_p99_ms for each in rivals)
        most = max(each.rows_per_second for each in equals)
        one = ", one row a claim" if len(equals) < len(rivals) else ""
        if outcome.of_best == 1:
            wins.append(f"{load}: the most rows")
        elif outcome.rows_per_second == most:
            wins.append(f"{load}: the most rows{one}")
        elif outcome.rows_per_second < 0.5 * most:
            loses.append(f"{load}: {outcome.rows_per_second / most:.2f} of the best's rows{one}")
        if outcome.wait_p99_ms == shortest:
            wins.append(f"{load}: the shortest waits")
        elif outcome.wait_p99_ms > max(LONG * shortest, LONG_MS):
            loses.append(f"{load}: waits of {outcome.wait_p99_ms:.0f} ms")
        if outcome.tries >= 1.5:
            loses.append(f"{load}: {outcome.tries:.1f} tries a claim")
        for count, what in (
            (outcome.deadlocks, "deadlocks"),
            (outcome.timeouts, "lock timeouts"),
            (outcome.duplicates, "DUPLICATES"),
        ):
            if count:
                loses.append(f"{load}: {count:,} {what}")
    return wins, loses


HEADER = ("WAY", "ROWS/S", "OF BEST", "WAIT P50", "P99 ms", "TRIES", "DEADLOCKS", "TIMEOUTS", "DUPLICATES", "CPU")


def lines(comparison: Comparison) -> Iterator[str]:
    """Yield the lines; the last one names the limit of the fastest way."""
    yield from head(comparison.server, comparison.machine)
    yield f"{comparison.connections} connections from {comparison.processes} processes; CPU is the busiest process' share of a core"
    if comparison.note:
        yield comparison.note
    if comparison.redis:
        yield f"the Redis: {comparison.redis}"
    for hold in dict.fromkeys(outcome.hold_ms for outcome in comparison.outcomes):
        yield ""
        yield load_name(hold)
        yield from _table([each for each in comparison.outcomes if each.hold_ms == hold])
    yield ""
    for way in comparison.ways:
        yield f"{way.name}: {way.about}"
        yield from (f"    + {win}" for win in way.wins)
        yield from (f"    − {loss}" for loss in way.loses)
    yield ""
    best = max(comparison.outcomes, key=lambda each: (each.hold_ms == 0, each.rows_per_second))
    yield f"limit of {best.way}, the fastest, {'short' if not best.hold_ms else f'at {best.hold_ms:g} ms'}: {best.limit}"


def _table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    rows = [HEADER, *map(_row, outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    for row in rows:
        first, *others = (
            text.rjust(width) if place else text.ljust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(["", first, *others]).rstrip()


def _row(outcome: Outcome) -> tuple[str, ...]:
    return (
        outcome.way,
        f"{outcome.rows_per_second:,.0f}",
        f"{outcome.of_best:.2f}",
        f"{outcome.wait_p50_ms:.2f}",
        f"{outcome.wait_p99_ms:.2f}",
        f"{outcome.tries:.2f}",
        str(outcome.deadlocks),
        str(outcome.timeouts),
        str(outcome.duplicates),
        f"{outcome.cpu_share * 100:.0f} %",
    )
