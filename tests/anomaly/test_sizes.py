"""Payloads and errors of sizes at which other queues cut them off, refused them, or tried for ever."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from databases import Database
from dibs import DibsError
from dibs.settings import MOST_ERROR
from worker.harness import Site
from worker.program import Program
from worker.users import users_connection

MB = 1_000_000

#: What hand-made SQL trips over.
QUOTES = """it's "quoted" %s %(id)s {0} :id \\' \\\\ ; -- /* 😀 \n"""

#: A queue's name of 200 characters of four bytes each, as long as can be.
LONG_QUEUE = "😀" * 200


class Sizes(Program):
    """Tasks that take texts of any size, and raise them."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        super().__init__(url, folder, **settings)

        @self.app.task(name="digest")
        def digest(text: str) -> str:
            with self.diary.run():
                return hashlib.sha256(text.encode()).hexdigest()

        @self.app.task(name="scream", max_attempts=1)
        def scream(size: int) -> None:
            with self.diary.run():
                raise ValueError(long_text(size))

        self.digest, self.scream = digest, scream


def long_text(size: int) -> str:
    """Return a text of so many characters, full of what means something in SQL."""
    return (QUOTES * (size // len(QUOTES) + 1))[:size]


@pytest.fixture
def sizes(db: Database, tmp_path: Path) -> Iterator[Site[Sizes]]:
    with Site(db, tmp_path, Sizes, max_payload=50 * MB) as site:
        yield site


def test_around_eight_thousand_and_beyond(sizes: Site[Sizes]) -> None:
    """Around the 8,000 bytes that a notification may have, and the 64 KB of a TEXT: a waiting worker starts each at
    once, in the queue with the longest name that there can be, and its task gets every byte. Errors are kept short, to
    be read, and their jobs end as they should."""
    worker = sizes.start(queues=["default", LONG_QUEUE])
    for size in (7_900, 8_000, 8_100, 70_000, MB):
        text = long_text(size)
        began = time.monotonic()
        job = sizes.program.digest.using(queue=LONG_QUEUE).enqueue(text)
        assert job.join(timeout=10) == hashlib.sha256(text.encode()).hexdigest()
        (start,) = sizes.diary.entries("start", job=job.id)
        assert start.at - began < 1.9 or sizes.app.dialect.channel is None, (
            "it was told, and need not wait for its poll"
        )
    (failed,) = sizes.wait_ended(sizes.program.scream.enqueue(70_000).id)
    assert failed.status == "failed"
    assert "ValueError: it's" in (failed.error or "")
    assert len(failed.error or "") <= MOST_ERROR
    assert not [line for line in worker.complaints() if "could not be stored" in line]


@pytest.mark.slow
def test_megabytes(sizes: Site[Sizes]) -> None:
    """Twenty: stored exactly, or refused with one error that says why, where the server takes no statement as long."""
    worker = sizes.start()
    for size in (5 * MB, 20 * MB):
        text = long_text(size)
        try:
            job = sizes.program.digest.enqueue(text)
        except DibsError as error:
            assert "max_allowed_packet" in str(error), error
            continue
        assert job.join(timeout=60) == hashlib.sha256(text.encode()).hexdigest()
    (failed,) = sizes.wait_ended(sizes.program.scream.enqueue(20 * MB).id, within=60)
    assert failed.status == "failed"
    assert len(failed.error or "") <= MOST_ERROR
    assert sizes.program.note.enqueue(number=3).join(timeout=10) == 3
    assert worker.alive


@pytest.mark.slow
def test_what_telling_costs(sizes: Site[Sizes]) -> None:
    """Sixteen producers with transactions of one job each: with notifications at least half as many as without."""
    if sizes.app.dialect.channel is None:
        pytest.skip("nothing is told here")
    rates: dict[bool, float] = {}
    for notify in (True, False, True, False):
        app = sizes.db.app(notify=notify)
        note = app.task(name="note")(lambda number: None)
        barrier = threading.Barrier(16)

        def produce(_: int, note: Any = note, barrier: threading.Barrier = barrier) -> None:
            with users_connection(sizes.app) as connection:
                barrier.wait()
                for number in range(200):
                    note.using(connection=connection).enqueue(number)
                    connection.commit()

        began = time.monotonic()
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(produce, range(16)))
        rate = 16 * 200 / (time.monotonic() - began)
        rates[notify] = max(rate, rates.get(notify, 0.0))
        app.close()
    print(f"with notifications {rates[True]:.0f}/s, without {rates[False]:.0f}/s")
    assert rates[True] >= 0.5 * rates[False]
