"""A TCP proxy between a client and its server that delays, cuts, and goes silent in the ways in which networks do.

One listening port for each client, so that one can be hit alone. Runs on an event loop in a thread of its own; the
methods may be called from any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from enum import StrEnum


class Weather(StrEnum):
    """What the line does to bytes."""

    FAIR = "fair"
    SLOW = "slow"  # each piece comes late
    STALLED = "stalled"  # nothing passes; all of it comes late
    BLACK_HOLE = "black hole"  # nothing passes, and it is never seen again
    DEAF = "deaf"  # requests arrive, answers do not


#: Seconds by which a piece is late in slow weather.
LATE = 0.05


class Line:
    """The connections of one client."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._changed = asyncio.Event()
        self.weather = Weather.FAIR
        self.port = 0

    async def open(self) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pair = None
        try:
            upstream, onward = await asyncio.open_connection(self._lines.host, self._lines.port)
            pair = (writer, onward)
            self._pairs.add(pair)
            one = asyncio.ensure_future(self._pump(reader, onward, answers=False))
            other = asyncio.ensure_future(self._pump(upstream, writer, answers=True))
            _, left = await asyncio.wait([one, other], return_when=asyncio.FIRST_COMPLETED)
            for task in left:
                task.cancel()
        except OSError:
            pass  # the server is away
        finally:
            if pair is not None:
                self._pairs.discard(pair)
                pair[1].transport.abort()
            writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                if self.weather is Weather.SLOW:
                    await asyncio.sleep(LATE)
                if self.weather is Weather.BLACK_HOLE or (self.weather is Weather.DEAF and answers):
                    continue
                while self.weather is Weather.STALLED:
                    await self._changed.wait()
                target.write(data)
                await target.drain()

    def change(self, weather: Weather) -> None:
        """On the loop only. What has swallowed bytes can't be used any more and is cut when it clears up."""
        swallowed = self.weather in (Weather.BLACK_HOLE, Weather.DEAF)
        self.weather = weather
        self._changed.set()
        self._changed = asyncio.Event()
        if swallowed:
            self.cut()

    def cut(self) -> None:
        for writer, onward in list(self._pairs):
            writer.transport.abort()
            onward.transport.abort()

    def ports(self) -> list[int]:
        """Return the ports by which the server knows the connections of this client."""
        return [onward.get_extra_info("sockname")[1] for _, onward in list(self._pairs)]


class Lines:
    """The lines to one server, for a `with` statement."""

    def __init__(self, host: str, port: int, number: int) -> None:
        """`port` is the server's; it may be changed, for connections that are made from then on."""
        self.host = host
        self.port = port
        self._number = number
        self._lines: list[Line] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Lines:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(10)
        return self

    async def _open(self) -> None:
        for _ in range(self._number):
            line = Line(self)
            await line.open()
            self._lines.append(line)

    def listening(self, line: int) -> int:
        return self._lines[line].port

    def change(self, line: int, weather: Weather) -> None:
        self._loop.call_soon_threadsafe(self._lines[line].change, weather)

    def cut(self, line: int) -> None:
        self._loop.call_soon_threadsafe(self._lines[line].cut)

    def ports(self, line: int) -> list[int]:
        async def ports() -> list[int]:
            return self._lines[line].ports()

        return asyncio.run_coroutine_threadsafe(ports(), self._loop).result(10)

    async def _close(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
