"""Health: whether a worker's threads come round, and whether it can claim. Answered from memory alone: whoever asks
never waits for the database, and a worker is not killed because its database is away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dibs.store import Store
from dibs.worker.outage import Outage

#: A thread that has not come round for this long (seconds) hangs. The longest that one is busy by itself is 10 s.
QUIET = 30.0

#: Without an answer of the database's for this long (seconds) a worker is not ready. It asks every 10 s at least.
UNHEARD = 30.0


class Answer(NamedTuple):
    """What is answered to a probe: yes or no, why not, and what is known."""

    ok: bool
    reason: str
    facts: dict[str, Any]


class Beat:
    """When a thread last came round. Called by the thread itself, each time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._at = time.monotonic()

    def __call__(self) -> None:
        self._at = time.monotonic()

    @property
    def quiet(self) -> float:
        """For how many seconds it has not been heard of. A thread that waits for the database does not hang."""
        if self._store.asking:
            return 0.0
        return time.monotonic() - max(self._at, self._store.asked)


class Health:
    """What is known of one worker, from when it is made until it has ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._state = "starting"
        self._outage: Outage | None = None
        self._stores: Sequence[Store] = ()
        self._beats: dict[str, Beat] = {}
        self._claiming: Beat | None = None
        self._stuck: Callable[[], int] = lambda: 0
        self._choked: Callable[[], str] = lambda: ""

    @property
    def state(self) -> str:
        """`starting`, `working`, `stopping`, `stopped` or `failed`."""
        return self._state

    def begins(self, outage: Outage) -> None:
        """It connects, and `outage` is what it knows of its database."""
        self._outage = outage

    def works(
        self,
        stores: Sequence[Store],
        beats: dict[str, Beat],
        *,
        claiming: Beat,
        stuck: Callable[[], int],
        choked: Callable[[], str],
    ) -> None:
        """It works from now on.

        `claiming` beats each time that the fetcher could settle and claim what there was. `stuck` counts the slots that
        are taken by code whose job is out of time or lost, `choked` says where there are no others.
        """
        self._stuck, self._choked = stuck, choked
        for beat in (*beats.values(), claiming):
            beat()
        self._stores, self._beats, self._claiming = stores, beats, claiming
        if self._state == "starting":
            self._state = "working"

    def stops(self) -> None:
        self._state = "stopping"

    def ended(self) -> None:
        """Its threads have ended, or are left behind: nothing is asked of them any more."""
        self._state, self._beats = "stopped", {}

    def failed(self) -> None:
        """It has ended with an error: in a program that goes on without it, that is not to be overlooked."""
        self._state = "failed"

    def live(self) -> Answer:
        """Do its threads come round? False is worth a restart."""
        quiet = {name: round(beat.quiet, 1) for name, beat in self._beats.items()}
        hung = [
            f"the thread of the {name} has not come round for {age:.0f} s" for name, age in quiet.items() if age > QUIET
        ]
        if self._state == "failed":
            hung = ["the worker has ended with an error; the log says which"]
        facts = {"worker": self.name, "state": self._state, "quiet": quiet, "stuck": self._stuck()}
        return Answer(not hung, "; ".join(hung), facts)

    def ready(self) -> Answer:
        """Is it connected, to tables that fit, and does it claim? False passes by itself, as a rule."""
        live = self.live()
        reason = live.reason or self._unready()
        return Answer(not reason, reason, live.facts)

    def _unready(self) -> str:
        now = time.monotonic()
        if self._outage is not None and (since := self._outage.since) is not None:
            # Not with the driver's words: they may name hosts and users, and whoever asks need not be a friend.
            return f"the database has been out of use for {now - since:.0f} s; the worker's log says why"
        if self._state != "working" or self._claiming is None:
            return f"the worker is {self._state}"
        if (unheard := now - max(store.contact for store in self._stores)) > UNHEARD:
            return f"the database has not answered for {unheard:.0f} s"
        if (quiet := self._claiming.quiet) > QUIET:
            return f"the worker has claimed nothing for {quiet:.0f} s; its log says why"
        return self._choked()
