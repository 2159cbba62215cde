"""How long nothing is asked for after a claim that found nothing."""

from __future__ import annotations

from dibs.worker.pauses import FIRST_PAUSE, Pause


def test_pauses_grow() -> None:
    """Twice as long each time, up to the longest; then something is found, and they begin anew."""
    pause = Pause(1.0)
    taken = []
    for _ in range(8):
        pause.claims()
        pause.found_nothing(100.0)
        taken.append(pause.until - 100.0)
    for number, seconds in enumerate(taken):
        expected = min(FIRST_PAUSE * 2**number, 1.0)
        assert 0.9 * expected <= seconds <= 1.1 * expected
    pause.end()
    assert pause.until == 0.0
    pause.claims()
    pause.found_nothing(100.0)
    assert pause.until <= 100.0 + 1.1 * FIRST_PAUSE


def test_who_is_told_in_the_midst_of_a_claim_claims_again() -> None:
    """What was committed while it was under way it need not have seen."""
    pause = Pause(1.0)
    pause.claims()
    pause.end()
    pause.found_nothing(100.0)
    assert pause.until == 0.0
    pause.claims()
    pause.found_nothing(100.0)
    assert pause.until > 100.0


def test_pauses_end_together() -> None:
    """Where one kind of slots asks, another that has paused for half of its time asks too."""
    pause = Pause(1.0)
    pause.claims()
    pause.found_nothing(100.0)
    assert not pause.nearly_over(100.0)
    assert pause.nearly_over(100.0 + 0.6 * FIRST_PAUSE)
    assert not pause.is_over(100.0 + 0.8 * FIRST_PAUSE)
    assert pause.is_over(100.0 + 1.1 * FIRST_PAUSE)
