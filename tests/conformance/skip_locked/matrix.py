"""Ask a server which row locks go together, and write the answers into the page. `scripts/lock-matrix` runs it.

Each pair is asked twice: with NOWAIT, which is refused, and with SKIP LOCKED, which leaves the row out.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from conformance.skip_locked.lab import LABS, REFUSED, Lab, Session, lab_on
from databases import Database, new_database

PAGE = Path(__file__).parents[3] / "docs" / "skip-locked.md"

#: The locks that a statement can ask for, the strongest first.
WANTED = {
    "postgres": ["FOR UPDATE", "FOR NO KEY UPDATE", "FOR SHARE", "FOR KEY SHARE"],
    "mysql": ["FOR UPDATE", "FOR SHARE"],
}
#: MariaDB's words for it.
SPELT = {"FOR SHARE": "LOCK IN SHARE MODE"}

#: What else holds a row's lock: as the page says it, and the statement.
STATEMENTS = {
    "`UPDATE`, key unchanged": "UPDATE jobs SET note = 'x' WHERE id = 1",
    "`UPDATE` of the key": "UPDATE jobs SET id = 99 WHERE id = 1",
    "`DELETE`": "DELETE FROM jobs WHERE id = 1",
    "`INSERT` of a row that refers to it": "INSERT INTO parts VALUES (1)",
    "plain `SELECT`": "SELECT id FROM jobs WHERE id = 1",
}

ROW = "SELECT id FROM jobs WHERE id = 1"
CONFLICT, BESIDE = "×", "–"


def table(lab: Lab) -> str:
    """Return the matrix of a server as Markdown."""
    wanted = WANTED[lab.db.kind]
    held = {f"`{lock}`": f"{ROW} {spelt(lab, lock)}" for lock in wanted} | STATEMENTS
    lines = [
        f"| held ↓ wanted → | {' | '.join(f'`{lock}`' for lock in wanted)} |",
        f"|---|{'---|' * len(wanted)}",
    ]
    holder, other = lab.session(), lab.session()
    for name, statement in held.items():
        answers = [conflict(lab, holder, statement, other, f"{ROW} {spelt(lab, lock)}") for lock in wanted]
        lines.append(f"| {name} | {' | '.join(CONFLICT if each else BESIDE for each in answers)} |")
    return "\n".join(lines)


def spelt(lab: Lab, lock: str) -> str:
    return SPELT.get(lock, lock) if lab.mariadb else lock


def conflict(lab: Lab, holder: Session, held: str, other: Session, wanted: str) -> bool:
    """Do these two locks on the same row exclude each other?"""
    holder.run(f"BEGIN; {held}")
    refusal = other.error(f"{wanted} NOWAIT")
    skipped = other.ids(f"{wanted} SKIP LOCKED") == []
    holder.run("ROLLBACK")
    assert refusal in (None, REFUSED[lab.server]), refusal
    assert skipped == (refusal is not None), (held, wanted)
    return skipped


def marks(kind: str) -> re.Pattern[str]:
    """Return where the matrix of this kind of server is on the page."""
    return re.compile(rf"(?<=<!-- matrix: {kind} -->\n).*?(?=\n<!-- end -->)", re.DOTALL)


def main() -> int:
    """Write what the servers here answer into the page; fail if two of the same kind differ."""
    text, seen = PAGE.read_text(encoding="utf-8"), dict[str, str]()
    for name in LABS:
        with new_database(name) as url, lab_on(Database(name, url)) as lab:
            answered, kind = table(lab), lab.db.kind
        if seen.setdefault(kind, answered) != answered:
            print(f"{name} answers differently from others of its kind:\n{answered}", file=sys.stderr)
            return 1
        text, number = marks(kind).subn(answered, text)  # there is no backslash in it
        assert number == 1, f"the page has no place for {kind}"
        print(f"{name}: {answered.count(CONFLICT)} conflicts")
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
