"""How long ops take, by kind, in little room: an hour of claims is millions of them.

Times are counted in steps of 4 %, so a quantile is right to 2 %. What is taken from a worker is taken once: the next
account begins where the last one ended.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dibs.ops import Op
from dibs.store import Store

T = TypeVar("T")

STEP = 1.04
SHORTEST = 1e-6

#: Accounts travel between processes as JSON.
Plain = Mapping[str, Any]


@dataclass
class Times:
    """How often, how long, and how many rows came back."""

    steps: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0
    rows: int = 0

    def add(self, seconds: float, rows: int = 0) -> None:
        self.steps[int(math.log(max(seconds, SHORTEST) / SHORTEST) / math.log(STEP))] += 1
        self.seconds += seconds
        self.rows += rows

    @property
    def count(self) -> int:
        return self.steps.total()

    def quantile(self, share: float) -> float | None:
        """Return the time (seconds) that this share of them was within; None where there were none.

        >>> times = Times()
        >>> for milliseconds in range(1, 101):
        ...     times.add(milliseconds / 1000)
        >>> 0.049 < times.quantile(0.5) < 0.052, 0.097 < times.quantile(0.99) < 0.102, Times().quantile(0.5)
        (True, True, None)
        """
        left = math.ceil(share * self.count)
        for step in sorted(self.steps):
            left -= self.steps[step]
            if left <= 0:
                return float(SHORTEST * STEP ** (step + 0.5))
        return None

    def plain(self) -> Plain:
        return {"steps": dict(self.steps), "seconds": self.seconds, "rows": self.rows}

    def take_in(self, plain: Plain) -> None:
        """Add what another process counted."""
        self.steps.update({int(step): number for step, number in plain["steps"].items()})
        self.seconds += plain["seconds"]
        self.rows += plain["rows"]


class Timings:
    """The times of every kind of op that the stores of this process run, from `watch` on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[str, Times] = {}

    def add(self, kind: str, seconds: float, rows: int) -> None:
        with self._lock:
            self._kinds.setdefault(kind, Times()).add(seconds, rows)

    def taken(self) -> dict[str, Plain]:
        """Return what was counted since this was last asked."""
        with self._lock:
            kinds, self._kinds = self._kinds, {}
        return {kind: times.plain() for kind, times in kinds.items()}

    def watch(self) -> None:
        """Put a watch before every op that any store of this process runs, tries and pauses included."""
        run_it = Store.run

        def run(store: Store, make: Callable[[], Op[T]], **how: bool) -> T:
            kind = ""

            def made() -> Op[T]:
                nonlocal kind
                op = make()
                kind = kind_of(op)
                return op

            start = time.perf_counter()
            result = run_it(store, made, **how)
            rows: Any = result[1] if isinstance(result, tuple) and kind in ("claim", "full scan") else result
            self.add(kind, time.perf_counter() - start, len(rows) if isinstance(rows, list | dict) else 0)
            return result

        patched: Any = Store
        patched.run = run


def kind_of(op: Any) -> str:
    """Return what an op is called that has not begun. A claim, with what is settled with it or without, is one from the
    cursor or a `full scan`."""
    name: str = op.__name__
    if name not in ("claim", "settle_and_claim"):
        return name
    return "full scan" if op.gi_frame.f_locals["wanted"].since is None else "claim"
