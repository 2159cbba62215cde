"""Whether something has come on a socket that nobody has read yet, its end included."""

from __future__ import annotations

import select


def readable(descriptor: int) -> bool:
    """Look without waiting; True also for a socket that is closed."""
    if descriptor < 0:
        return True
    poll = select.poll()  # not select(), which takes no descriptor above 1023
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
