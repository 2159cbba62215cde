"""A list in Redis, for comparison: LMOVE takes an element into a second list, LREM takes it out of that when it is done.

So nothing is lost when a worker dies, as with a row. What Redis itself loses when it dies its own settings say.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from dibs.cli.secrets import hide, scrub
from dibs.errors import ConfigurationError, DatabaseUnavailable

NAME = "redis list"
ABOUT = "LMOVE into a second list, then LREM; another server, with a durability of its own"

#: Seconds after which Redis itself forgets what a killed run has left there.
FORGOTTEN_AFTER = 3_600

#: Elements in one command.
CHUNK = 1_000


class RedisPlace(msgspec.Struct, frozen=True):
    """Lists of the bench's own in a Redis."""

    url: str
    key: str

    @property
    def name(self) -> str:
        return NAME

    def client(self) -> Any:
        return _client(self.url)

    def way(self) -> InRedis:
        return InRedis(self)

    def fill(self, rows: int) -> None:
        """Begin anew with so many elements."""
        client = self.client()
        client.delete(self.key, f"{self.key}-taken")
        for start in range(1, rows + 1, CHUNK):
            client.rpush(self.key, *range(start, min(start + CHUNK, rows + 1)))
        client.expire(self.key, FORGOTTEN_AFTER)
        client.close()


class InRedis:
    """Claims elements over one connection."""

    waits = False

    def __init__(self, place: RedisPlace) -> None:
        self._client = place.client()
        self._key = place.key
        self._taken = f"{place.key}-taken"

    def claim(self, hold: float) -> tuple[list[int], float]:
        element = self._client.lmove(self._key, self._taken, "LEFT", "RIGHT")
        had_at = time.monotonic()
        if element is None:
            return [], had_at
        if hold:
            time.sleep(hold)
        self._client.lrem(self._taken, 1, element)
        return [int(element)], had_at

    def is_over(self) -> bool:
        return True  # nothing is skipped: an empty list is empty


def check(url: str) -> None:
    """Raise ConfigurationError or DatabaseUnavailable unless there is a Redis at this URL, and the client for it."""
    hide(url)
    try:
        import redis
    except ImportError as error:
        raise ConfigurationError('--redis needs the package redis: pip install "dibs[bench]"') from error
    try:
        _client(url).ping()
    except ValueError as error:
        raise ConfigurationError(f"not a URL of a Redis: {scrub(str(error))}") from None
    except redis.RedisError as error:
        raise DatabaseUnavailable(f"cannot connect to the Redis that --redis names: {scrub(str(error))}") from error


@contextmanager
def lists(url: str) -> Iterator[RedisPlace]:
    """Yield lists that are there as long as the block."""
    place = RedisPlace(url, f"dibs-bench-{secrets.token_hex(4)}")
    client = place.client()
    try:
        yield place
    finally:
        client.delete(place.key, f"{place.key}-taken")
        client.close()


def settings(url: str) -> str:
    """Return how durable it is set to be, where it tells."""
    import redis

    try:
        found = _client(url).config_get("append*")
    except redis.RedisError:
        return "its durability is not known"
    return f"appendonly = {found.get('appendonly')}, appendfsync = {found.get('appendfsync')}"


def _client(url: str) -> Any:
    import redis

    return redis.Redis.from_url(url, decode_responses=True, socket_timeout=30, socket_connect_timeout=10)
