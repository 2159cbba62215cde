"""Words for a person to read, said alike wherever they stand."""

from __future__ import annotations

from datetime import datetime


def jobs(number: int) -> str:
    """Return a number of jobs in words.

    >>> jobs(1), jobs(2_000)
    ('1 job', '2,000 jobs')
    """
    return f"{number:,} job{'s' * (number != 1)}"


def moment(at: datetime) -> str:
    """Return a time in UTC as it is printed, to the second."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
