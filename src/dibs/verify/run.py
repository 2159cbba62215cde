"""Runs all checks side by side and gathers what each found."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from enum import StrEnum
from threading import Event

import msgspec

from dibs.errors import DatabaseError, DatabaseUnavailable
from dibs.meanings import is_of_a_driver
from dibs.scratch import Place
from dibs.verify import faults, quiet
from dibs.verify.ground import Failed, Ground, Skipped

Check = Callable[[Ground], str]

#: By name, in the order in which they are shown.
CHECKS: dict[str, Check] = {
    "server": quiet.server,
    "clock": quiet.clock,
    "row contention": quiet.contention,
    "empty queue": quiet.empty,
    "duplicate replay": quiet.duplicates,
    "transactional enqueue": quiet.transactional,
    "crash recovery": faults.crash,
    "fencing": faults.fencing,
    "exactly once": faults.exactly_once,
    "lost connection": faults.lost_connection,
}

#: Checks at a time: the slow ones, which mostly wait for a lease to end, and two more.
AT_A_TIME = 6

#: Those that take longest begin first.
SLOW = ("exactly once", "fencing", "crash recovery", "lost connection")


class Outcome(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    SKIPPED = "SKIPPED"


class Finding(msgspec.Struct, frozen=True):
    """What one check found; `seconds` is how long it took."""

    name: str
    outcome: Outcome
    evidence: str
    seconds: float


def verify(place: Place, seen: Callable[[Finding], None]) -> list[Finding]:
    """Run all checks in an empty place; return what they found in their order. `seen` hears of each as it ends.

    A database in which the tables can't be made fails as `server`, and nothing else is tried. Raises
    DatabaseUnavailable when it can't be reached.
    """
    began = time.monotonic()
    over = Event()
    with Ground(place, over) as ground:
        try:
            ground.app.migrate()
            ground.app.store.run(ground.statements.make_effects)
        except DatabaseUnavailable:
            raise
        except DatabaseError as error:
            return _not_here(error, time.monotonic() - began, seen)
    order = [*SLOW, *(name for name in CHECKS if name not in SLOW)]
    with ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="dibs-verify") as threads:
        futures = [threads.submit(_find, name, place, over) for name in order]
        try:
            for future in as_completed(futures):
                seen(future.result())
        except BaseException:
            over.set()  # what runs gives up, and ends its workers, before the pool's block is left
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    found = {finding.name: finding for finding in (future.result() for future in futures)}
    return [found[name] for name in CHECKS]


def _not_here(error: DatabaseError, seconds: float, seen: Callable[[Finding], None]) -> list[Finding]:
    findings = [Finding("server", Outcome.FAIL, _line(error), round(seconds, 3))]
    findings += [
        Finding(name, Outcome.SKIPPED, "no tables could be made to try it on", 0.0)
        for name in CHECKS
        if name != "server"
    ]
    for finding in findings:
        seen(finding)
    return findings


def _find(name: str, place: Place, over: Event) -> Finding:
    began = time.monotonic()
    try:
        with Ground(place, over) as ground:
            outcome, evidence = Outcome.PASS, CHECKS[name](ground)
    except Skipped as reason:
        outcome, evidence = Outcome.SKIPPED, _line(reason)
    except Failed as failure:
        outcome, evidence = Outcome.FAIL, _line(failure)
    except Exception as error:
        if not isinstance(error, DatabaseError) and not is_of_a_driver(error):
            raise
        outcome, evidence = Outcome.FAIL, f"{type(error).__name__}: {_line(error)}"
    return Finding(name, outcome, evidence, round(time.monotonic() - began, 3))


def _line(error: Exception) -> str:
    """Return an error's text on one line, without marks that point into the line above."""
    parts = [part.strip() for part in str(error).splitlines()]
    return "; ".join(part for part in parts if part.strip("^~")) or type(error).__name__
