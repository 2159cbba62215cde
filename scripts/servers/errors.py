"""What can go wrong on the way to a running server. Nothing here starts or stops one."""

from __future__ import annotations


class Unavailable(Exception):
    """There is no such server to be had on this machine. Tests skip on it, naming the reason."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class StartFailed(Unavailable):
    """The programs are there, and the server did not come up. `log` has the last lines that it wrote."""

    def __init__(self, what: str, log: str) -> None:
        self.log = log
        super().__init__(f"{what}\n{log}" if log else what)
