"""The signals that stop a worker."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

logger = logging.getLogger("dibs")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

Handler = Callable[[int, FrameType | None], None]

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

    before = {number: handle(number, told) for number in STOP_SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            _ours.pop(number, None)
            signal.signal(number, handler)

    return restore


#: Our own handlers, which a fork that a task makes is not to inherit.
_ours: dict[signal.Signals, Handler] = {}


def handle(number: signal.Signals, handler: Handler) -> Any:
    """Have `handler` called at this signal, in this process and in no fork of it; return what handled it before.

    Whoever tells a fork to end, as a pool of `multiprocessing` does, waits for that.
    """
    _ours[number] = handler
    return signal.signal(number, handler)


# A fork does without our handlers from its first moment on. While it has them still, a signal is kept back: Python forgets
# those that its handlers have caught before a fork has settled in (_PySignal_AfterFork), and 287 of 300 that were
# sent right after the fork were lost.

_forking = threading.local()


def _keep_back() -> None:
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS) if _ours else None


def _let_through() -> None:
    if _forking.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _without_ours() -> None:
    for number, handler in _ours.items():
        if signal.getsignal(number) is handler:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    _ours.clear()
    try:
        _let_through()
    except KeyboardInterrupt:  # nobody would see it this early: what is raised here is only printed
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


os.register_at_fork(before=_keep_back, after_in_parent=_let_through, after_in_child=_without_ours)
