"""Measures the ways to claim a row one after the other: same table, same index, same connections, same time."""

from __future__ import annotations

from contextlib import ExitStack

import click

from dibs import ops
from dibs.bench import redis_list
from dibs.bench.baseline import Baseline
from dibs.bench.claimer import Orders, Round, Tally
from dibs.bench.comparison import Comparison, Outcome, judge_ways
from dibs.bench.crew import Crew
from dibs.bench.figures import times
from dibs.bench.limits import judge
from dibs.bench.machine import Stopwatch
from dibs.bench.progress import progress
from dibs.bench.redis_list import RedisPlace
from dibs.bindings.binding import OwnConnection
from dibs.dialects.bench import Measuring, measuring
from dibs.dialects.bench.measuring import Strategy
from dibs.scratch import Place

#: How long (seconds) a claim holds its row: not at all, and as long as a short piece of work takes.
HOLDS = (0.0, 0.005)

#: Connections get a process each up to this number; more share them evenly. A process takes some 30 MB.
MOST_PROCESSES = 32

#: Rows that are there for each second and row of a claim: more than any server here gives to short claims.
ROWS = 8_000
MOST_ROWS = 1_000_000


def compare(place: Place, shown: str, *, connections: int, seconds: float, redis_url: str | None) -> Comparison:
    """Measure all ways under all loads. Raises ClickException when a process dies or a count is not right."""
    baseline = Baseline(place, shown)
    app = place.app()
    processes = min(connections, MOST_PROCESSES)
    shares = [connections // processes + (number < connections % processes) for number in range(processes)]
    measured = measuring(app.dialect)
    with ExitStack() as stack:
        connection = app.store.open()
        stack.callback(connection.close)
        connection.patience = None  # filling a large table takes its time
        ops.run(measured.make_claims(), connection)
        comparing = Comparing(baseline, connection, measured, connections, seconds)
        outcomes = []
        abouts = [(strategy.name, strategy.about) for strategy in measured.strategies]
        total = len(HOLDS) * (len(measured.strategies) + (redis_url is not None))
        step = stack.enter_context(progress(f"{connections} connections", total))
        with Crew("claimer", [Orders(place, share) for share in shares], Tally) as crew:
            crew.hear_all()
            for hold in HOLDS:
                for strategy in measured.strategies:
                    outcomes.append(comparing.measure(crew, strategy, hold))
                    step(1)
        if redis_url is not None:
            lists = stack.enter_context(redis_list.lists(redis_url))
            abouts.append((redis_list.NAME, redis_list.ABOUT))
            with Crew("claimer", [Orders(place, share, lists) for share in shares], Tally) as crew:
                crew.hear_all()
                for hold in HOLDS:
                    outcomes.append(comparing.measure_redis(crew, lists, hold))
                    step(1)
    for outcome in outcomes:
        best = max(each.rows_per_second for each in outcomes if each.hold_ms == outcome.hold_ms)
        outcome.of_best = round(outcome.rows_per_second / best, 3) if best else 0.0
    return Comparison(
        server=baseline.server,
        machine=baseline.machine,
        connections=connections,
        processes=processes,
        ways=judge_ways(abouts, outcomes),
        outcomes=outcomes,
        note=measured.note,
        redis=None if redis_url is None else redis_list.settings(redis_url),
    )


class Comparing:
    """Plays rounds and counts what came out."""

    def __init__(
        self, baseline: Baseline, connection: OwnConnection, measured: Measuring, connections: int, seconds: float
    ) -> None:
        self._baseline = baseline
        self._connection = connection
        self._measured = measured
        self._connections = connections
        self._seconds = seconds

    def measure(self, crew: Crew[Tally], strategy: Strategy, hold: float) -> Outcome:
        """Measure one way in the database; check that it holds what the processes say."""
        ops.run(self._measured.fill_claims(self._rows(strategy.rows, hold)), self._connection)
        outcome, ids = self._play(crew, strategy.name, hold, strategy.rows)
        done, marked, twice = ops.run(self._measured.count_claims(), self._connection)
        if marked != len(ids):
            raise click.ClickException(
                f"{strategy.name}: the processes claimed {len(ids):,} rows, and {marked:,} were marked in the database"
            )
        outcome.duplicates = max(outcome.duplicates, twice, len(ids) - done)
        return outcome

    def measure_redis(self, crew: Crew[Tally], lists: RedisPlace, hold: float) -> Outcome:
        lists.fill(self._rows(2, hold))
        return self._play(crew, lists.name, hold, 1)[0]

    def _rows(self, claimed: int, hold: float) -> int:
        """Return how many rows to begin with, so that they last."""
        most = self._connections / hold if hold else ROWS
        return min(int(most * claimed * self._seconds) + self._connections * claimed, MOST_ROWS)

    def _play(self, crew: Crew[Tally], name: str, hold: float, batch: int) -> tuple[Outcome, list[int]]:
        watch = Stopwatch()
        crew.tell_all(Round(name, hold, self._seconds))
        tallies = crew.hear_all(beyond=self._seconds)
        ids = [row for tally in tallies for row in tally.ids]
        waits = [wait / 1_000_000 for tally in tallies for wait in tally.waits]
        seconds = max(tally.ended for tally in tallies) - min(tally.began for tally in tallies)
        if not ids:
            raise click.ClickException(f"{name}: no row was claimed in {self._seconds:g} s; give it more --seconds")
        vain = sum(tally.vain + tally.deadlocks + tally.timeouts for tally in tallies)
        readings = [tally.reading for tally in tallies if tally.reading is not None]
        waited = times(waits)
        outcome = Outcome(
            way=name,
            hold_ms=hold * 1000,
            batch=batch,
            claims=len(waits),
            rows=len(ids),
            seconds=round(seconds, 3),
            rows_per_second=round(len(ids) / seconds, 1),
            of_best=0.0,
            wait_p50_ms=waited.p50_ms,
            wait_p99_ms=waited.p99_ms,
            tries=round(1 + vain / len(waits), 3),
            deadlocks=sum(tally.deadlocks for tally in tallies),
            timeouts=sum(tally.timeouts for tally in tallies),
            duplicates=len(ids) - len(set(ids)),
            cpu_share=round(max(reading.cpu for reading in readings) / seconds, 3),
            limit=judge(self._baseline.seen(watch, readings, seconds=seconds)),
        )
        return outcome, ids
