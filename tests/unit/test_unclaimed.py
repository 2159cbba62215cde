"""Since when a lane is looked at for tasks that nobody knows."""

from __future__ import annotations

from dibs.worker.unclaimed import ALL_EVERY, _Seen


def test_a_look_goes_back_to_the_one_before_the_last() -> None:
    """A commit that was late by less than the time between two looks is seen; now and then all of the lane is."""
    seen, since = _Seen(), []
    for moment in range(ALL_EVERY + 3):
        since.append(seen.since)
        seen.take_note(float(moment), moment)
    assert since[:5] == [None, None, 0, 1, 2]
    assert since[ALL_EVERY:] == [None, ALL_EVERY - 1, ALL_EVERY]
