"""The driver's connection in one of dibs' own: what a user would bring, for whoever tries out what users do."""

from __future__ import annotations

from typing import Any

from dibs.bindings.binding import OwnConnection


def inside(connection: OwnConnection) -> Any:
    """Return the driver's connection. Begin, commit and roll back on dibs' own, which knows how."""
    own: Any = connection
    return own._raw
