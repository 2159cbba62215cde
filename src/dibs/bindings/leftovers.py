"""Tells a transaction that a session of SQLAlchemy's began by itself after a commit: nobody may ever commit that one.

Such as by reading an attribute of a row that was just committed: the row is read again, and that begins a transaction.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from dibs.bindings.surroundings import session_or_connection

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_KEY = "dibs: has committed"

_listening = False


def listen() -> None:
    """Have sessions remember that they have committed, if there can be any."""
    global _listening
    orm = sys.modules.get("sqlalchemy.orm")
    if _listening or orm is None:
        return
    from sqlalchemy import event

    event.listen(orm.Session, "after_commit", _remember)
    _listening = True


def _remember(session: Session) -> None:
    if not session.in_nested_transaction():  # it is told of savepoints, too
        session.info[_KEY] = True


def is_leftover(connection: Any) -> bool:
    """Did this session begin the transaction that it is in by itself, after a commit, and has it written nothing since?

    Not seen are statements that change rows without the session's knowledge. Where it is committed in the end, because
    writing comes only after this, the answer is wrong: it is good for a warning and no more.
    """
    wanted = session_or_connection(connection)
    session = getattr(wanted, "sync_session", wanted)
    if not hasattr(session, "get_bind") or not session.info.get(_KEY):
        return False
    transaction = session.get_transaction()
    if transaction is None or transaction.origin.name != "AUTOBEGIN" or session.in_nested_transaction():
        return False
    flushed = any(getattr(transaction, name, None) for name in ("_new", "_dirty", "_deleted"))
    return not (flushed or session.new or session.dirty or session.deleted)
