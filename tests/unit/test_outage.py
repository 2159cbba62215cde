"""What a worker's threads know together of a database that is away: one word about it, and one try at a time."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from dibs.errors import DatabaseError, DatabaseFull, DatabaseUnavailable, ReadOnlyDatabase
from dibs.worker.outage import JITTER, LONGEST_PAUSE, Outage, StillAway


def test_it_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """When it goes, and when it is back: how long it was away, and since when. An answer from before says nothing."""
    outage = Outage()
    heard = time.monotonic()
    for _ in range(3):
        outage.failed(DatabaseUnavailable("no route"))
    outage.over(heard)
    assert outage.since is not None
    assert outage.calm == 0
    outage.over(time.monotonic())
    outage.over(time.monotonic())
    assert outage.since is None
    assert 0 < outage.calm < 10
    gone, back = caplog.records
    assert gone.getMessage() == "the database can't be used, trying again until it can: no route"
    assert back.getMessage().startswith("the database is back after 0.0 s; it could not be used since 20")
    assert vars(back)["outage_seconds"] >= 0
    assert "T" in vars(back)["outage_since"]
    assert {gone.levelno, back.levelno} == {logging.WARNING}


def test_no_room_is_told_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """What only reads goes on well in a database that is full, and is not the end of that."""
    outage = Outage()
    for _ in range(3):
        outage.failed(DatabaseFull("disk full"))
        outage.over(time.monotonic())
        assert outage.since is not None
    monkeypatch.setattr("dibs.worker.outage.ROOM_AFTER", 0.0)
    outage.over(time.monotonic())
    assert outage.since is None
    assert len(caplog.records) == 2


def test_what_one_statement_meets_is_not_told_each_time(caplog: pytest.LogCaptureFixture) -> None:
    """While the others go on well it would be a line each half a second; another reason is told."""
    outage = Outage()
    for _ in range(5):
        outage.failed(DatabaseError("integer out of range"))
        outage.over(time.monotonic())
    outage.failed(DatabaseError("something else"))
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3
    assert "something else" in caplog.text


def test_threads_share_one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is away for longer than a moment, whoever comes first may connect, and the others wait for the next time; afterwards all may."""
    outage = Outage()
    for _ in range(3):
        outage.admit()
    outage.failed(DatabaseUnavailable("away"))
    outage.admit()
    outage.over(time.monotonic())
    monkeypatch.setattr("dibs.worker.outage.FREELY", 0.0)
    pauses = [outage.failed(DatabaseUnavailable("away")) for _ in range(6)]
    assert pauses == sorted(pauses[:3]) + pauses[3:], "it backs off"
    assert all((1 - JITTER) * LONGEST_PAUSE <= pause <= (1 + JITTER) * LONGEST_PAUSE for pause in pauses[2:])
    admitted: list[float] = []

    def thread() -> None:
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            try:
                outage.admit()
                admitted.append(time.monotonic())
            except StillAway as still:
                assert str(still) == "away"
                time.sleep(min(outage.failed(still), 0.05))

    threads = [threading.Thread(target=thread) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert 1 <= len(admitted) <= 3
    outage.over(time.monotonic())
    for _ in range(3):
        outage.admit()


def test_a_server_that_takes_no_writes_is_the_wrong_one() -> None:
    """Then no connection is trusted any more, since what only reads over it would never find out; else they are kept."""
    told: list[str] = []
    outage = Outage(distrust=lambda: told.append("distrust"))
    outage.failed(DatabaseUnavailable("too many connections"))
    assert told == []
    outage.failed(ReadOnlyDatabase("a replica"))
    assert told == ["distrust"]
