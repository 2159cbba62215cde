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
    process = os.getpid()

    def told(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:
            as_without_handler(number)
            return
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


def as_without_handler(number: int) -> None:
    """Do what the system, or Python, does at a stop signal that nobody handles.

    For a fork that a task has made, which inherits the handlers of its worker: whoever tells it to end, as a pool of
    `multiprocessing` does, waits for that.
    """
    if number == signal.SIGINT:
        signal.signal(number, signal.default_int_handler)
        raise KeyboardInterrupt
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
