"""What everything else is judged by: this machine at rest, a round trip to the server, and a commit there."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from dibs import ops
from dibs.bench import machine
from dibs.bench.figures import Machine, Server
from dibs.bench.limits import Seen
from dibs.bench.machine import Stopwatch
from dibs.bench.meter import Reading
from dibs.bench.progress import progress
from dibs.bindings.binding import OwnConnection
from dibs.dialects.bench import Measuring, measuring
from dibs.scratch import Place

#: So often the round trip is measured, and a commit.
TRIPS = 200
COMMITS = 50


class Baseline:
    """Makes the tables and measures what a round trip and a commit cost."""

    def __init__(self, place: Place, shown: str) -> None:
        """`shown` is the user's URL, without a password."""
        self._place = place
        busy = machine.busy_before()
        self.machine = Machine(machine.CORES, place.url.is_here, None if busy is None else round(busy, 3))
        app = place.app()
        try:
            app.migrate()
            connection = app.store.open()
            try:
                self.server = self._measure(connection, measuring(app.dialect), shown)
            finally:
                connection.close()
        finally:
            app.close()

    def _measure(self, connection: OwnConnection, measured: Measuring, shown: str) -> Server:
        version = ops.run(measured.version(), connection)
        durable, settings = ops.run(measured.durability(), connection)
        trips, commits = [], []
        with progress("round trip and commit", TRIPS + COMMITS) as step:
            for _ in range(TRIPS):
                trips.append(_timed(lambda: ops.run(measured.round_trip(), connection)))
                step(1)
            for _ in range(COMMITS):
                connection.begin()
                ops.run(measured.change_a_row(), connection)
                commits.append(_timed(connection.commit))
                step(1)
        # A commit goes there and back, too.
        self._round_trip = _usual(trips)
        self._commit = max(_usual(commits) - self._round_trip, 0.0)
        return Server(shown, version, durable, settings, _ms(self._round_trip), _ms(self._commit))

    def seen(self, watch: Stopwatch, readings: Sequence[Reading], *, seconds: float | None = None) -> Seen:
        """Return what was counted since the stopwatch began, by processes of ours with these readings."""
        return Seen(
            seconds=watch.seconds if seconds is None else seconds,
            cpus=[reading.cpu for reading in readings],
            waited=sum(reading.waited for reading in readings),
            statements=sum(reading.statements for reading in readings),
            commits=sum(reading.commits for reading in readings),
            round_trip=self._round_trip,
            commit=self._commit,
            busy=watch.busy,
            before=self.machine.busy_before or 0.0,
            cores=machine.CORES,
            is_here=self._place.url.is_here,
            has_server=self._place.url.file is None,
        )


def _usual(seconds: Sequence[float]) -> float:
    """Return the mean without the tenth that took longest and the tenth that took shortest.

    The mean, since a limit is judged by what many take together; and one hiccup in so few would be most of it.
    """
    tenth = len(seconds) // 10
    return statistics.fmean(sorted(seconds)[tenth : len(seconds) - tenth])


def _timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
