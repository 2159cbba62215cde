"""One process that claims rows in one of the ways that are compared, over one connection or a few.

A process for each connection, up to a number of them: with all connections in one process Python's GIL would be
measured, not the database.
"""

from __future__ import annotations

import os
import queue
import random
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from dibs import ops
from dibs.bench.meter import Counted, Reading, Waiting, reading
from dibs.bench.redis_list import RedisPlace
from dibs.bindings import connector
from dibs.cli.secrets import hide
from dibs.dialects.bench import Measuring, measuring
from dibs.dialects.bench.measuring import Strategy
from dibs.scratch import Place
from dibs.troubles import Trouble

#: The longest pause (seconds) after a try that came to nothing and waited for nobody; the pauses are random.
PAUSE = 0.002


class Orders(msgspec.Struct):
    """What a process is told at its start. With a `redis` it claims there, not in the database."""

    place: Place
    connections: int
    redis: RedisPlace | None = None


class Round(msgspec.Struct):
    """What is measured next: a way to claim, how long each claim holds its row, and for how long; all in seconds."""

    strategy: str
    hold: float
    seconds: float


class Tally(msgspec.Struct, omit_defaults=True):
    """What one process counted in a round, or that it is ready for one. Moments are of the monotonic clock."""

    ready: bool = False
    ids: list[int] = []
    waits: list[int] = []  # microseconds from wanting a row until having it, for each claim
    vain: int = 0  # tries that gave nothing although there was something
    deadlocks: int = 0
    timeouts: int = 0
    began: float = 0.0
    ended: float = 0.0  # the last commit
    reading: Reading | None = None


class Refused(Exception):
    """A try came to nothing because of others: `kind` is a field of the tally."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


class Way(Protocol):
    """One way to claim, over one connection."""

    waits: bool

    def claim(self, hold: float) -> tuple[list[int], float]:
        """Claim once; return the ids that it had, and since when, by the monotonic clock. Raises Refused."""

    def is_over(self) -> bool:
        """Is there nothing left to claim?"""


class InDatabase:
    """Claims rows of the table: each claim one transaction."""

    def __init__(self, connection: Counted, measured: Measuring, strategy: Strategy) -> None:
        self._connection = connection
        self._measured = measured
        self._strategy = strategy
        self.waits = strategy.waits

    def claim(self, hold: float) -> tuple[list[int], float]:
        way, connection = self._strategy, self._connection
        try:
            seen = ops.run(self._measured.seen_by(way), connection)
            if way.look is not None and not seen:
                return [], time.monotonic()
            connection.begin()
            ids = ops.run(self._measured.taken_by(way, seen), connection)
            had_at = time.monotonic()
            if ids and hold:
                time.sleep(hold)
            if ids and not way.marks:
                ops.run(self._measured.mark(ids), connection)
            connection.commit()
        except Exception as error:
            kind = self._kind(connection.trouble(error))
            if kind is None:
                raise
            connection.rollback()
            raise Refused(kind) from error
        finally:
            ops.run(self._measured.let_go_by(way), connection)
        return ids, had_at

    def _kind(self, trouble: Trouble) -> str | None:
        if trouble is Trouble.LOCKED:
            return "vain" if self._strategy.expects_refusal else "timeouts"
        return "deadlocks" if trouble is Trouble.CONFLICT else None

    def is_over(self) -> bool:
        return not ops.run(self._measured.any_ready(), self._connection)


@dataclass
class Claimer:
    """Claims over one connection until the round is over."""

    way: Way
    round: Round
    tally: Tally = field(default_factory=Tally)
    error: BaseException | None = None

    def run(self) -> None:
        try:
            self._claim_on()
        except BaseException as error:  # noqa: BLE001 - raised again by the process's main thread
            self.error = error

    def _claim_on(self) -> None:
        tally, dice = self.tally, random.Random()
        tally.began = tally.ended = wanted = time.monotonic()
        while time.monotonic() - tally.began < self.round.seconds:
            try:
                ids, had_at = self.way.claim(self.round.hold)
            except Refused as refused:
                setattr(tally, refused.kind, getattr(tally, refused.kind) + 1)
            else:
                if ids:
                    tally.ids += ids
                    tally.waits.append(round((had_at - wanted) * 1_000_000))
                    wanted = tally.ended = time.monotonic()
                    continue
                if self.way.is_over():
                    return
                tally.vain += 1
            if not self.way.waits:
                time.sleep(dice.uniform(0, PAUSE))


class ClaimerProcess:
    """Plays the rounds that it is told of."""

    def __init__(self, orders: Orders) -> None:
        self._counted: list[Counted] = []
        self._waiting = Waiting()
        self._ways: dict[str, list[Way]] = {}
        if orders.redis is not None:
            self._ways[orders.redis.name] = [orders.redis.way() for _ in range(orders.connections)]
            return
        measured = measuring(orders.place.app().dialect)
        connect = connector(orders.place.url)
        self._counted = [Counted(connect("dibs-bench"), self._waiting) for _ in range(orders.connections)]
        for strategy in measured.strategies:
            self._ways[strategy.name] = [InDatabase(each, measured, strategy) for each in self._counted]

    def run(self) -> None:
        told: queue.SimpleQueue[Round] = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(told,), daemon=True).start()
        _say(Tally(ready=True))
        while True:
            _say(self._play(told.get()))

    def _play(self, played: Round) -> Tally:
        before = reading(self._counted, self._waiting)
        claimers = [Claimer(way, played) for way in self._ways[played.strategy]]
        threads = [threading.Thread(target=each.run) for each in claimers[1:]]
        for thread in threads:
            thread.start()
        claimers[0].run()
        for thread in threads:
            thread.join()
        for claimer in claimers:
            if claimer.error is not None:
                raise claimer.error
        tallies = [claimer.tally for claimer in claimers]
        return Tally(
            ids=[job_id for tally in tallies for job_id in tally.ids],
            waits=[wait for tally in tallies for wait in tally.waits],
            vain=sum(tally.vain for tally in tallies),
            deadlocks=sum(tally.deadlocks for tally in tallies),
            timeouts=sum(tally.timeouts for tally in tallies),
            began=min(tally.began for tally in tallies),
            ended=max(tally.ended for tally in tallies),
            reading=reading(self._counted, self._waiting).since(before),
        )


def _listen(told: queue.SimpleQueue[Round]) -> None:
    """Pass on what is told. At the end of it the bench is no more: end at once, in whatever round."""
    for line in sys.stdin.buffer:
        told.put(msgspec.json.decode(line, type=Round))
    os._exit(0)


def _say(tally: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(tally) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """Work until the bench has no more use for this process."""
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=Orders)
    hide(f"://{orders.place.url.user}:{orders.place.url.password}@")
    hide(orders.redis.url if orders.redis is not None else None)
    try:
        ClaimerProcess(orders).run()
    except BrokenPipeError:
        os._exit(1)  # nobody listens any more
