"""The signals that stop a worker."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

logger = logging.getLogger("dibs")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

#: Those that come within this time (seconds) of the first are one that was sent twice: `timeout` and other wrappers send one
#: to the process and one to its group.
ONE_SIGNAL = 0.3


def heed(stop: Callable[[], None]) -> Callable[[], None]:
    """Have the stop signals call `stop`, a second one end the process at once; return what restores their handlers."""
    heard: list[float] = []

    def told(number: int, frame: FrameType | None) -> None:
        heard.append(time.monotonic())
        # Signals alone: where a supervisor has called stop(), the first one is not a second.
        if heard[-1] - heard[0] > ONE_SIGNAL:
            logger.warning("stopped by a second signal; jobs that were running come back when their lease is over")
            os._exit(1)
        stop()

    before: dict[signal.Signals, Any] = {number: signal.signal(number, told) for number in STOP_SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore
