"""Who is told, in this process, of each job that it writes: what tests look at. Nobody, as a rule.

Imports nothing, since the pytest plugin does so in test suites that have nothing to do with dibs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Each is called with the app, the job's id and the name of its task, when it has been written, not committed.
recorders: list[Callable[[Any, int, str], None]] = []
