"""Carries blows out, each at its time, and undoes what is to last only a while."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count

from faults.blows import Blow, Kind
from faults.crew import Crew, Process
from faults.ground import Ground
from faults.proxy import Weather

GLANCE = 0.05

WEATHERS = {
    Kind.SLOW: Weather.SLOW,
    Kind.STALL: Weather.STALLED,
    Kind.BLACK_HOLE: Weather.BLACK_HOLE,
    Kind.DEAF: Weather.DEAF,
    Kind.PRODUCER_DEAF: Weather.DEAF,
}
#: In these the server still hears from its client in time, as a rule; it is no excuse for a lost lease.
MILD = {Weather.SLOW}


class Storm:
    """One run's blows. Lines of workers come first, then those of producers."""

    def __init__(self, ground: Ground, workers: Crew, producers: Crew, say: Callable[[str], None]) -> None:
        self.struck: Counter[Kind] = Counter()
        self.missed: Counter[Kind] = (
            Counter()
        )  # what could not be done just then, such as killing a server that is away
        self._ground = ground
        self._workers = workers
        self._producers = producers
        self._say = say
        self._undo: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._weather: dict[int, int] = {}  # line → which blow made its weather
        self._away = False

    def rage(self, blows: Sequence[Blow]) -> None:
        """Carry out all blows; return when the last one is over."""
        began = time.monotonic()
        waiting = list(blows)
        while waiting or self._undo:
            now = time.monotonic()
            while self._undo and self._undo[0][0] <= now:
                heapq.heappop(self._undo)[2]()
            if waiting and began + waiting[0].at <= now:
                blow = waiting.pop(0)
                done = self._strike(blow)
                (self.struck if done else self.missed)[blow.kind] += 1
                self._say(
                    f"{now - began:6.1f} s  {blow.number:3}  {blow}{'' if done else ' (not now: the server is away)'}"
                )
            self._workers.tend()
            self._producers.tend()
            time.sleep(GLANCE)

    def _after(self, seconds: float, undo: Callable[[], None]) -> None:
        heapq.heappush(self._undo, (time.monotonic() + seconds, next(self._number), undo))

    def _strike(self, blow: Blow) -> bool:
        kind = blow.kind
        crew = self._producers if "producer" in kind else self._workers
        process = crew.places[blow.whom]
        line = blow.whom + (len(self._workers.places) if crew is self._producers else 0)
        match kind:
            case Kind.KILL | Kind.KILL_PRODUCER:
                process.kill()
            case Kind.TERMINATE:
                process.terminate()
            case Kind.NAP | Kind.FREEZE:
                process.freeze(blow.seconds)
                self._after(blow.seconds, process.thaw)
            case Kind.CUT:
                self._cut(line)
            case Kind.CUT_ALL:
                for each in range(len(self._workers.places) + len(self._producers.places)):
                    self._cut(each)
            case Kind.SLOW | Kind.STALL | Kind.BLACK_HOLE | Kind.DEAF | Kind.PRODUCER_DEAF:
                self._turn(blow, line, process)
            case Kind.SESSIONS | Kind.PRODUCER_SESSIONS | Kind.ALL_SESSIONS:
                if self._away:
                    return False
                everybody = range(len(self._workers.places) + len(self._producers.places))
                for each in everybody if kind is Kind.ALL_SESSIONS else [line]:
                    self._ground.end_sessions(each)
            case _:
                return self._server(blow)
        return True

    def _cut(self, line: int) -> None:
        assert self._ground.lines is not None
        self._ground.lines.cut(line)

    def _turn(self, blow: Blow, line: int, process: Process) -> None:
        lines = self._ground.lines
        assert lines is not None
        weather = WEATHERS[blow.kind]
        if weather not in MILD:
            process.harm(weather, seconds=blow.seconds)
        self._weather[line] = blow.number
        lines.change(line, weather)

        def clear_up() -> None:
            if self._weather[line] == blow.number:
                lines.change(line, Weather.FAIR)

        self._after(blow.seconds, clear_up)

    def _server(self, blow: Blow) -> bool:
        server = self._ground.server
        assert server is not None
        if blow.kind is Kind.PROMOTE:
            self._ground.fail_over()
            self._away = False
            return True
        if self._away:
            return False
        if blow.kind is Kind.KILL_SERVER:
            server.kill()
        else:
            server.stop("immediate")
        if blow.kind is not Kind.AWAY:
            server.start()
            return True

        def come_back() -> None:
            if self._ground.server is server:  # and no replica took its place
                server.start()
                self._away = False

        self._away = True
        self._after(blow.seconds, come_back)
        return True
