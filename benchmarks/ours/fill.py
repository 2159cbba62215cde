"""Many rows in one statement, which every database understands: what would take an hour to enqueue and run."""

from __future__ import annotations

from dibs import Dibs
from dibs.ops import Execute
from ours.connections import kind_of

_DIGIT = " UNION ALL ".join(["SELECT 0 AS n", *(f"SELECT {digit}" for digit in range(1, 10))])

#: So many hours from now, as a database writes it.
_HOURS = {
    "postgres": "now() + {} * interval '1 hour'",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now', '{} hours')",
    "mysql": "UTC_TIMESTAMP(6) + INTERVAL {} HOUR",
    "mariadb": "UTC_TIMESTAMP(6) + INTERVAL {} HOUR",
}
_PAYLOAD = {
    "postgres": """CAST('{{"number":' || (number + {}) || '}}' AS json)""",
    "sqlite": """'{{"number":' || (number + {}) || '}}'""",
    "mysql": """CONCAT('{{"number":', number + {}, '}}')""",
    "mariadb": """CONCAT('{{"number":', number + {}, '}}')""",
}
_QUEUE = {
    "postgres": "'queue' || (number % {})",
    "sqlite": "'queue' || (number % {})",
    "mysql": "CONCAT('queue', number % {})",
    "mariadb": "CONCAT('queue', number % {})",
}


def fill(
    url: str, rows: int, *, status: str = "ready", hours: int = -1, first: int = 0, queues: int = 1, priorities: int = 1
) -> None:
    """Write so many jobs, due so many hours from now, with the numbers from `first` on, spread over queues and priorities.

    A single queue is called "default". Where the two numbers have no divisor in common, all lanes get as many.
    """
    kind = kind_of(url)
    later = _HOURS[kind].format
    places = range(len(str(rows - 1)))
    number = " + ".join(f"{10**place} * d{place}.n" for place in places)
    digits = " CROSS JOIN ".join(f"({_DIGIT}) AS d{place}" for place in reversed(places))
    queue = "'default'" if queues == 1 else _QUEUE[kind].format(queues)
    ended = status in ("done", "failed")
    _execute(
        url,
        f"""INSERT INTO dibs_jobs (queue, priority, task, payload, status, created_at, run_at, finished_at, expires_at)
            SELECT {queue}, number % {priorities}, 'job', {_PAYLOAD[kind].format(first)}, '{status}', {later(-2)}, {later(hours)},
                {later(-1) if ended else "NULL"}, {later(24) if ended else "NULL"}
            FROM (SELECT {number} AS number FROM {digits} WHERE {number} < :rows) AS numbers ORDER BY number""",
        rows=rows,
    )


def end_all(url: str) -> None:
    """Make everything done that is ready: as many dead entries at the head of the ready index."""
    later = _HOURS[kind_of(url)].format
    _execute(
        url,
        f"""UPDATE dibs_jobs SET status = 'done', finished_at = {later(-1)}, expires_at = {later(24)}
            WHERE status = 'ready'""",
    )


def _execute(url: str, sql: str, **values: int) -> None:
    connection = Dibs(url).store.open()
    connection.patience = None
    try:
        connection.answer(Execute(sql, values))
    finally:
        connection.close()
