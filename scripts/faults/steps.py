"""A process is killed, or loses its connection, at its n-th request to the database, for every n.

    scripts/steps                                # on SQLite, and on throwaway servers of the others
    scripts/steps --database mysql --every 5     # every fifth request only

Each victim enqueues in every way and works off what it has enqueued: claims, renewals, settling, finishing in a
transaction of the user's. The fault comes before its n-th request is sent, when it was sent and the answer not read, or
after it. Who only lost a connection has to come through by itself, with no job run twice and no lease run out; what the
dead leave behind is worked off by one worker in the end. Then the books are compared as after a chaos run. Exit code 1
where something was violated.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from time import monotonic

import msgspec

from dibs import Dibs
from faults import chaos
from faults.book import Entry, entries
from faults.compare import Row, compare
from faults.crew import PATHS, Crew, Process
from faults.ground import Ground, ground
from faults.orders import LEASE, WITHIN, How, VictimOrders, When

AT_A_TIME = 6

#: More requests than the first victim makes are tried, since no two make the same number.
BEYOND = 8

#: How a process ended that the server which forks them has lost sight of; what it wrote tells what came of it.
UNTOLD = 255


class Report(msgspec.Struct):
    """What was done, and what was found. `steps` counts the requests at which something happened, by their names."""

    database: str
    seconds: float
    victims: int
    killed: int
    cut_off: int
    steps: dict[str, int]
    not_struck: dict[str, list[str]]  # in a way → requests that victims made and at which that never happened
    counts: dict[str, int]
    violations: list[str]


def run(database: str, url: str | None, *, every: int, say: Callable[[str], None], keep: Path | None = None) -> Report:
    """Run all victims, then compare. With `every` 5 only every fifth request is struck."""
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="dibs-steps-") as temporary, ground(database, url, lines=1) as place:
        book = (keep or Path(temporary)) / "book"
        book.mkdir(parents=True)
        with _victims(place) as start:
            Dibs(place.url).migrate()
            chaos.open_ledger(place)
            return _run(place, book, start, every=every, say=say, began=began)


@contextmanager
def _victims(place: Ground) -> Iterator[Callable[[VictimOrders], int | None]]:
    """Yield what runs a victim and returns its exit code. They are forked from one process that has imported all."""
    os.environ["DATABASE_URL"] = place.client_url
    os.environ["PYTHONPATH"] = os.pathsep.join(PATHS)  # the process that forks looks nowhere else
    sys.path[:0] = [path for path in PATHS if path not in sys.path]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["faults.victim"])

    def start(orders: VictimOrders) -> int | None:
        from faults.victim import main

        process = context.Process(target=main, args=(orders,))
        process.start()
        process.join(WITHIN + 30)
        if process.exitcode is None:
            process.kill()
            process.join()
            return None
        return process.exitcode

    yield start


def _run(
    place: Ground,
    book: Path,
    start: Callable[[VictimOrders], int | None],
    *,
    every: int,
    say: Callable[[str], None],
    began: float,
) -> Report:
    tags = count(1)
    one = VictimOrders(str(book), next(tags), 0, When.BEFORE, How.KILL)
    if code := start(one):
        raise RuntimeError(f"a victim to which nothing happens ended with {code}")
    requests = next(entry.job for entry in entries(book) if entry.event == "survived") + BEYOND
    hows = [How.KILL, How.CUT] if place.kind == "sqlite" else list(How)
    ways = [
        (when, how) for how in hows for when in When if place.kind != "sqlite" or (when, how) != (When.DURING, How.CUT)
    ]
    say(f"on {place.title}: {requests - BEYOND} requests, struck in {len(ways)} ways")
    orders = [
        VictimOrders(str(book), next(tags), at, when, how)
        for shift, (when, how) in enumerate(ways)
        for at in range(1 + shift % every, requests + 1, every)
    ]
    codes: dict[int, int | None] = {}
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        for each, code in zip(orders, threads.map(start, orders), strict=True):
            codes[each.tag] = code
            if len(codes) % 50 == 0:
                say(f"{monotonic() - began:6.1f} s  {len(codes)} of {len(orders)}")
    written = entries(book)
    rows = chaos.read_rows(place)
    pids = {entry.pid: entry.number for entry in written if entry.event == "victim"}
    dead = _dead(orders, codes, {entry.number for entry in written if entry.event == "survived"})
    violations = [*_survivors([each for each in orders if each.tag not in dead], codes, rows)]
    _clear_up(place, book)
    harms: dict[int, list[tuple[float, float, str]]] = {
        pid: [(0.0, 1e18, "kill -9")] for pid, tag in pids.items() if tag in dead
    }
    found = compare(chaos.read_rows(place), entries(book), harms=harms, lease=LEASE)
    struck, not_struck = _steps(orders, written, pids, ways)
    return Report(
        database=place.title,
        seconds=round(monotonic() - began, 1),
        victims=len(orders),
        killed=len(dead),
        cut_off=sum(entry.event == "struck" for entry in written) - len(dead),
        steps=struck,
        not_struck=not_struck if every == 1 else {},
        counts=found.counts,
        violations=violations + found.violations + chaos.ledger_problems(place),
    )


def _dead(orders: Sequence[VictimOrders], codes: dict[int, int | None], survived: set[int]) -> set[int]:
    """Return who was killed: by how it ended, or, where that was not told, by not having said that it came through."""
    return {
        each.tag
        for each in orders
        if each.how is How.KILL and (codes[each.tag] == -9 or (codes[each.tag] == UNTOLD and each.tag not in survived))
    }


def _survivors(survivors: Sequence[VictimOrders], codes: dict[int, int | None], rows: Sequence[Row]) -> Iterator[str]:
    """Who was not killed has ended well, with all of its jobs done, none of them twice and no lease run out."""
    jobs: dict[int, list[Row]] = defaultdict(list)
    for each in rows:
        jobs[each.number // 100].append(each)
    for victim in survivors:
        what = f"victim {victim.tag} ({victim.how} {victim.when} request {victim.at})"
        code = codes[victim.tag]
        if code not in (0, UNTOLD):
            yield f"{what} ended with {code}"
        for job in jobs[victim.tag]:
            if job.status != "done" or job.crashes:
                yield f"{what} left job {job.id} ({job.task}) {job.status}, leases that ran out: {job.crashes}"


def _clear_up(place: Ground, book: Path) -> None:
    """Have one worker do what the dead have left behind."""

    def launch(generation: int) -> Process:
        return chaos.launch_worker(
            place.client_url, book, book.parent / "worker.log", lease=LEASE, grace=5.0, concurrency=30
        )

    with Crew("worker", [launch]) as crew:
        if left := chaos.drain(place, crew):
            raise RuntimeError(left[0])
        crew.stop()


def _steps(
    orders: Sequence[VictimOrders], written: Sequence[Entry], pids: dict[int, int], ways: Sequence[tuple[When, How]]
) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Return how often each request was struck, and those that never were in one of the ways."""
    way = {each.tag: (each.when, each.how) for each in orders}
    struck: dict[str, set[tuple[When, How]]] = defaultdict(set)
    number: dict[str, int] = defaultdict(int)
    made: set[str] = set()
    for entry in written:
        if entry.event == "struck":
            struck[entry.detail].add(way[pids[entry.pid]])
            number[entry.detail] += 1
        elif entry.event == "survived":
            made.update(entry.detail.splitlines())
    missing = {
        f"{how} {when}": sorted(label for label in made if (when, how) not in struck[label]) for when, how in ways
    }
    return dict(sorted(number.items())), {way: labels for way, labels in missing.items() if labels}
