"""The state table makes sense, and the diagram shows all of it."""

from __future__ import annotations

import pytest

from dibs.states import FINAL, TRANSITIONS, Event, State, diagram


def reachable(start: State) -> set[State]:
    found = {start}
    while more := {target for (state, _), target in TRANSITIONS.items() if state in found} - found:
        found |= more
    return found


def test_every_state_can_be_reached() -> None:
    """From ready, where every job begins."""
    assert reachable(State.READY) == set(State)


@pytest.mark.parametrize("state", State)
def test_every_state_can_end(state: State) -> None:
    """There is no state from which a job could not come to an end."""
    assert reachable(state) & FINAL


@pytest.mark.parametrize("state", sorted(FINAL))
def test_an_end_is_left_by_a_person_only(state: State) -> None:
    """What has ended does not begin again by itself."""
    assert {event for (left, event) in TRANSITIONS if left is state} <= {Event.REQUEUE}


def test_only_a_claim_runs_a_job() -> None:
    """Nothing else leads to running, and it leads there from ready alone."""
    assert [move for move, target in TRANSITIONS.items() if target is State.RUNNING] == [(State.READY, Event.CLAIM)]


def test_every_event_happens() -> None:
    """No event is in the table for nothing."""
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_the_diagram_shows_every_move() -> None:
    """Each line of the table is an arrow, and each job comes from somewhere and goes somewhere."""
    lines = [line.strip() for line in diagram().splitlines()]
    assert lines[:2] == ["stateDiagram-v2", "[*] --> ready: enqueue"]
    for (state, event), target in TRANSITIONS.items():
        assert f"{state} --> {target}: {event}" in lines
    for state in FINAL:
        assert f"{state} --> [*]: prune" in lines
    assert len(lines) == 2 + len(TRANSITIONS) + len(FINAL)
