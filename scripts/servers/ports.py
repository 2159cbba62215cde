"""A free TCP port on the loopback address."""

from __future__ import annotations

import random
import socket
from pathlib import Path

LOWEST, HIGHEST = 15_000, 30_000
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """Return a port that nobody listens on at this moment.

    It lies below the range from which the kernel serves outgoing connections: a port in that range can be
    taken by any client between a server's stop and its next start. Another server may still be faster than we
    are, so whoever starts one tries again with another port.
    """
    dice = random.SystemRandom()
    candidates = _range()
    for _ in range(200):
        port = dice.choice(candidates)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port between {candidates[0]} and {candidates[-1]}")


def _range() -> range:
    try:
        first_ephemeral = int(EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return range(LOWEST, HIGHEST)
    # Where the whole range is ephemeral there is nothing better than the usual one.
    highest = min(HIGHEST, first_ephemeral)
    return range(LOWEST, highest if highest > LOWEST + 1_000 else HIGHEST)
