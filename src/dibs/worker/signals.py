"""The signals that stop a worker."""

from __future__ import annotations

import signal

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

#: Those that come within this time (seconds) of the first are one that was sent twice: `timeout` and other wrappers send one
#: to the process and one to its group.
ONE_SIGNAL = 0.3
