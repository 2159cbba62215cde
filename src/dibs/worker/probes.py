"""A port for probes: `/livez` and `/readyz` over HTTP, answered from memory in a thread of its own; and for `/metrics`.

It serves whoever can reach it, so it says little, and nothing that comes in ends it or holds up the worker.
"""

from __future__ import annotations

import errno
import json
import logging
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dibs.errors import ConfigurationError, DibsError
from dibs.worker.health import Answer

logger = logging.getLogger("dibs")

#: How long (seconds) a connection may say nothing, and how many there may be at a time; others are closed at once.
PATIENCE = 5.0
MOST_CONNECTIONS = 32

#: What is asked, by path. Shared with the socket of `dibs health`.
QUESTIONS = ("livez", "readyz")

#: Asked at the socket alone, by a supervisor: what the worker has counted.
METRICS = "metrics"

Ask = Callable[[str], Answer]

#: What answers `/metrics`: the text, and of which kind it is. Raises DibsError where that can't be had.
Measure = Callable[[], tuple[bytes, str]]


class Probes:
    """Listens from when it is made; answers what `ask` says to "livez" and "readyz"."""

    def __init__(self, ask: Ask | None, *, host: str | None, port: int, measure: Measure | None = None) -> None:
        """Without `ask` there are metrics alone. `host` None: all interfaces, IPv6 too where there is one. Port 0 is any that is free.

        Raises ConfigurationError when it can't be listened there.
        """
        both = host is None and socket.has_dualstack_ipv6()
        try:
            try:
                self._server = _Server(ask, measure, host, port, both=both)
            except OSError as error:
                if not both or error.errno != errno.EADDRNOTAVAIL:
                    raise
                self._server = _Server(ask, measure, host, port, both=False)  # IPv6 is there, and switched off
        except (OSError, OverflowError) as error:
            where = f"port {port}" if host is None else f"{host}, port {port}"
            reason = getattr(error, "strerror", None) or str(error)
            name = "health-port" if ask is not None else "serve"
            raise ConfigurationError(f"{name}: {where} can't be listened at: {reason}") from error
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="dibs-probes", daemon=True)
        self._thread.start()
        logger.info("probes are answered at port %d: %s", self.port, ", ".join(self._server.paths))

    def close(self) -> None:
        """Listen no more. Answers that are under way are not waited for."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(1)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, ask: Ask | None, measure: Measure | None, host: str | None, port: int, *, both: bool) -> None:
        self.ask, self.measure = ask, measure
        self.paths = [f"/{name}" for name in (*(QUESTIONS if ask else ()), *((METRICS,) if measure else ()))]
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        if both or (host is not None and ":" in host):
            self.address_family = socket.AF_INET6
        self._both = both
        super().__init__((host or "", port), _Handler)

    def server_bind(self) -> None:
        # Not the base's own: it asks for the machine's full name, which may take a resolver's timeout.
        if self._both:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a probe's connection ended with an error", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE
    server_version = "dibs"
    sys_version = ""
    server: _Server

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].strip("/")
        if name in QUESTIONS and self.server.ask is not None:
            answer = self.server.ask(name)
            said = {"ok": answer.ok, **({"reason": answer.reason} if answer.reason else {}), **answer.facts}
            self._say(200 if answer.ok else 503, json.dumps(said), "application/json")
        elif name == METRICS and self.server.measure is not None:
            try:
                text, kind = self.server.measure()
            except DibsError as error:
                self._say(404 if isinstance(error, ConfigurationError) else 503, str(error))
            else:
                self._say(200, text.decode().removesuffix("\n"), kind)
        else:
            self._say(404, f"there are {' and '.join(self.server.paths)}")

    do_HEAD = do_GET  # noqa: N815 - as http.server calls it

    def _say(self, code: int, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        body = f"{text}\n".encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Probes come every few seconds; they are no news."""
