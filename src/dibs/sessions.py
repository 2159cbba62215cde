"""Whose a session on the server is: one connection's for as long as that is open, or lent by the transaction.

What a session keeps (LISTEN, a setting, a lock) would be somebody else's a moment later where a pooler lends it. So
nothing of that kind is sent before this was asked, and nothing is left on the server by asking.
"""

from __future__ import annotations

import time

from dibs import ops
from dibs.dialects.dialect import Dialect
from dibs.store import Store

#: How often to look for the session, and how long (seconds) to wait in between. A pooler with idle sessions gives out
#: the last one first, or one after the other; one that is in full use gives whichever comes free (one of 20: found in
#: 200 looks but for 3 times in 100,000).
LOOKS = 200
PAUSE = 0.005


def are_lent(store: Store, dialect: Dialect) -> bool:
    """Does a pooler between here and the server lend its sessions by the transaction?

    Only where the dialect has a `channel`. The session that served one connection is looked for under a second one,
    while the first is open and idle: where each keeps its own, it is never found, and stays the first one's. Raises what a
    lost connection does.
    """
    first = store.open()
    try:
        if not first.pooled:
            return False
        served = ops.run(dialect.session(), first)
        second = store.open()
        try:
            for _ in range(LOOKS):
                # By another one by now: somebody's transaction has got the first, and may keep it for long.
                if ops.run(dialect.session(), second) == served or ops.run(dialect.session(), first) != served:
                    return True
                time.sleep(PAUSE)
        finally:
            second.close()
        return False
    finally:
        first.close()
