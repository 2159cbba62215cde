"""Where to look for the next jobs: lanes in their order, cursors in each, full scans held to their share."""

from __future__ import annotations

from dibs.jobs import Lane, Position
from dibs.worker.lanes import DEAR, LEAST_COST, LONGEST_UNSEEN, LOOK_BACK, SHARE, Horizon, Lanes
from dibs.worker.scout import LONG

A, B = Lane("a", 0), Lane("b", 0)
FIRST, SECOND = Position("10:00", 1), Position("11:00", 2)


def lanes(*known: Lane, queues: list[str] | None = None) -> Lanes:
    made = Lanes(queues)
    made.learn(known)
    return made


def claimed(
    made: Lanes, lane: Lane, first: Position | None = FIRST, *, full: bool = True, took: float = 0.01, now: float = 0.0
) -> None:
    made.claimed(lane, first, full=full, took=took, now=now)


# -- their order -----------------------------------------------------------------------------------


def test_listed_queues_in_their_order() -> None:
    """The first one goes first, each time."""
    made = lanes(A, B, Lane("c", 0), queues=["c", "a", "missing", "b"])
    assert [[lane.queue for lane in made.in_order()] for _ in range(2)] == [["c", "a", "b"]] * 2


def test_all_queues_in_turns() -> None:
    """Where none were listed each queue comes first as often as the others."""
    made = lanes(A, B, Lane("c", 0))
    firsts = [made.in_order()[0].queue for _ in range(9)]
    assert {queue: firsts.count(queue) for queue in "abc"} == {"a": 3, "b": 3, "c": 3}
    assert sorted(made.in_order()) == [A, B, Lane("c", 0)]


def test_by_weight() -> None:
    """Each comes first as often as its weight says, evenly spread; one that has nothing leaves its share to the others."""
    made = Lanes(["a", "b", "c"], weights={"a": 3, "b": 1, "c": 2})
    made.learn([A, B, Lane("c", 0)])
    firsts = "".join(made.in_order()[0].queue for _ in range(12))
    assert {queue: firsts.count(queue) for queue in "abc"} == {"a": 6, "b": 2, "c": 4}
    assert "aaa" not in firsts
    made.learn([A, B])
    firsts = "".join(made.in_order()[0].queue for _ in range(40))
    assert 8 <= firsts.count("b") <= 12
    assert sorted(lane.queue for lane in made.in_order()) == ["a", "b"]


def test_strictly_by_priority_within_a_queue() -> None:
    """The highest first; another queue's priorities have nothing to say."""
    low, high, other = Lane("a", -5), Lane("a", 9), Lane("b", 32_767)
    made = lanes(low, A, other, high, queues=["a", "b"])
    assert made.in_order() == [high, A, low, other]


def test_nothing_known_is_nothing_to_do() -> None:
    """An empty database has no lanes."""
    assert lanes().in_order() == lanes(queues=["a"]).in_order() == []


# -- cursors ---------------------------------------------------------------------------------------


def test_the_first_claim_is_a_full_scan() -> None:
    """Nothing is known of what stands where."""
    assert lanes(A).since(A, now=0.0) is None


def test_then_from_the_earliest_position_of_the_last_batch() -> None:
    """Until it is time for a full scan again; and each lane for itself."""
    made = lanes(A, B)
    claimed(made, A)
    assert made.since(A, now=0.001) == FIRST
    assert made.since(B, now=0.001) is None


def test_the_cursor_goes_back_to_late_rows() -> None:
    """Also when the batch began further back: kept ahead, it would starve what comes late."""
    made = lanes(A)
    claimed(made, A, SECOND)
    claimed(made, A, FIRST, full=False, now=0.001)
    assert made.since(A, now=0.002) == FIRST


def test_an_empty_claim_leaves_the_cursor() -> None:
    """There was nothing behind it; what was before it is found by the next full scan."""
    made = lanes(A)
    claimed(made, A, SECOND)
    claimed(made, A, None, full=False)
    assert made.since(A, now=0.001) == SECOND


def full_scans(made: Lanes, cost: float, *, during: float = 60.0, usual: float = 0.001) -> tuple[int, int, float]:
    """Claim without a pause; return how many claims were full scans, how many not, and what share of the time the
    full scans took beyond the others."""
    now, full, other, spent = 0.0, 0, 0, 0.0
    while now < during:
        is_full = made.since(A, now=now) is None
        took = usual + cost if is_full else usual
        now += took
        claimed(made, A, full=is_full, took=took, now=now)
        full, other, spent = full + is_full, other + (not is_full), spent + cost * is_full
    return full, other, spent / now


def test_full_scans_keep_to_their_share() -> None:
    """Dear ones are rare: together they take a twentieth of the time, however many lanes there are."""
    for known in ([A], [A, B, *(Lane("c", n) for n in range(8))]):
        full, other, share = full_scans(lanes(*known), cost=0.02)
        assert share <= SHARE * 1.1
        assert full > 60.0 / LONGEST_UNSEEN
        assert other > 10 * full


def test_cheap_full_scans_are_frequent() -> None:
    """Where they cost nothing beyond a round trip, every few claims is one: late rows wait for milliseconds."""
    full, other, _ = full_scans(lanes(A), cost=0.0, during=5.0)
    assert full > 0.15 * other


def test_no_row_is_unseen_for_long() -> None:
    """However dear a full scan is, there is one within a stated time."""
    made = lanes(A, *(Lane("c", n) for n in range(50)))
    claimed(made, A, full=True, took=5.0)
    claimed(made, A, full=True, took=5.0)
    assert made.since(A, now=LONGEST_UNSEEN - 0.1) == FIRST
    assert made.since(A, now=LONGEST_UNSEEN + 0.1) is None


def test_a_single_slow_answer_says_nothing() -> None:
    """A hiccup of the machine does not put the next full scan off; two in a row do."""
    made = lanes(A)
    claimed(made, A, took=0.0)
    claimed(made, A, took=2.0, now=10.0)
    assert made.since(A, now=10.0 + 2 * LEAST_COST / SHARE) is None
    claimed(made, A, took=2.0, now=20.0)
    assert made.since(A, now=21.0) == FIRST


# -- others' jobs ----------------------------------------------------------------------------------


def test_a_long_full_scan_is_put_off() -> None:
    """While the scout looks, claims go on from the cursor; while it looks elsewhere too, but not for long."""
    made = lanes(A, B)
    assert not made.is_long(A), "nothing is known of it"
    claimed(made, A, SECOND, took=LONG / 2)
    assert not made.is_long(A)
    claimed(made, A, SECOND, took=2 * LONG, now=1.0)
    assert made.is_long(A)
    assert made.put_off(A, now=20.0, scouted=True) == SECOND
    assert made.since(A, now=29.0) == SECOND, "it is not asked for again before the answer"
    made.scouted(A, FIRST, took=2 * LONG, now=21.0)
    assert made.since(A, now=21.0) == FIRST
    assert made.since(A, now=22.0) is None, "and next as soon as its share allows"
    assert made.put_off(A, now=22.0, scouted=False) == FIRST
    assert made.put_off(A, now=40.0, scouted=False) is None
    made.scouted(A, SECOND, took=2 * LONG, now=41.0)
    assert made.since(A, now=41.0) == FIRST, "what stands behind the cursor does not move it"
    made.scouted(Lane("gone", 0), FIRST, took=1.0, now=42.0)


def test_others_jobs_are_passed_by() -> None:
    """A dear claim in vain: the next one begins a moment ago, and looks at what came since then only."""
    made = lanes(A)
    for now in (0.0, 1.0):
        made.claimed(A, None, full=True, took=0.01, now=now, behind="09:00")
    assert made.in_vain(A)
    assert made.since(A, now=1.0) == Position("09:00", 0)
    made.claimed(A, None, full=False, took=0.01, now=2.0, behind="08:59")
    assert made.since(A, now=1.0) == Position("09:00", 0)


def test_a_cheap_claim_in_vain_passes_nothing_by() -> None:
    """A row that is committed late is found at once, as long as looking for it costs nothing."""
    made = lanes(A)
    claimed(made, A, FIRST)
    made.claimed(A, None, full=False, took=DEAR / 2, now=0.001, behind="12:00")
    assert not made.in_vain(A)
    assert made.since(A, now=0.001) == FIRST


def test_dear_claims_in_vain_keep_to_their_share() -> None:
    """Whoever finds nothing among a great many of others' jobs looks for them in a twentieth of the time; one that
    is told of something new looks at once."""
    made = lanes(A)
    now = spent = 0.0
    while now < 10.0:
        if made.rests(A, now=now):
            now += 0.001
            continue
        now, spent = now + 0.02, spent + 0.02
        made.claimed(A, None, full=True, took=0.02, now=now)
    assert 0.5 * SHARE < spent / now < 1.2 * SHARE
    made.claimed(A, None, full=False, took=0.02, now=now, behind="09:00")
    assert made.rests(A, now=now)
    made.told("a", "08:00", now=0.0)
    assert not made.rests(A, now=now)
    assert made.since(A, now=now) == Position("08:00", 0)


def test_a_full_scan_in_vain_keeps_nobody_waiting() -> None:
    """Under a held snapshot it walks over all that is dead. What comes next is found from the cursor, at once, whether
    or not anybody tells of it."""
    made = lanes(A)
    claimed(made, A, FIRST)
    for now in (1.0, 2.0):
        assert made.since(A, now=now) is None
        made.claimed(A, None, full=True, took=0.04, now=now, behind="12:00")
    assert made.since(A, now=2.01) is not None
    assert not made.rests(A, now=2.01)


def test_the_horizon_is_a_moment_ago() -> None:
    """The database's time as it was asked for at least that long ago; unknown before, and after a reconnection."""
    horizon = Horizon()
    assert horizon.behind(0.0) is None
    for now, moment in (
        (0.0, "09:00:00"),
        (0.5, "09:00:00.5"),
        (LOOK_BACK, "09:00:01"),
        (LOOK_BACK + 0.5, "09:00:01.5"),
    ):
        assert horizon.wanted(now)
        horizon.note(now, moment)
        assert not horizon.wanted(now + 0.01)
        assert horizon.behind(now) == {LOOK_BACK: "09:00:00", LOOK_BACK + 0.5: "09:00:00.5"}.get(now)
    assert horizon.behind(LOOK_BACK + 0.7) == "09:00:00.5"
    assert horizon.behind(2 * LOOK_BACK + 0.5) == "09:00:01.5"
    horizon.forget()
    assert horizon.behind(9.0) is None


# -- news ------------------------------------------------------------------------------------------


def test_a_wakeup_looks_from_the_beginning() -> None:
    """In the lanes of the queue that it names."""
    made = lanes(A, Lane("a", 5), B)
    for lane in (A, Lane("a", 5), B):
        claimed(made, lane, took=1.0)
        claimed(made, lane, took=1.0)
    made.told("a", now=0.0)
    assert made.since(A, now=1.0) is made.since(Lane("a", 5), now=1.0) is None
    assert made.since(B, now=1.0) == FIRST


def test_a_wakeup_with_a_moment_looks_from_there() -> None:
    """No full scan is needed to find what was committed late: it is due since the moment that was told."""
    made = lanes(A)
    for _ in range(2):
        claimed(made, A, SECOND, took=1.0)
    made.told("a", FIRST.run_at, now=0.0)
    assert made.since(A, now=1.0) == Position(FIRST.run_at, 0)
    claimed(made, A, SECOND, full=False)
    made.told("a", "12:00", now=0.0)
    assert made.since(A, now=1.0) == SECOND


def test_a_wakeup_after_a_long_look_in_vain() -> None:
    """Where nothing was ever claimed and the full scan took long, the next claim is from the moment that is told."""
    made = lanes(A)
    claimed(made, A, None, took=0.1, now=1.0)
    made.told("a", "09:00", now=1.1)
    assert made.is_long(A), "the next full scan is the scout's"
    assert made.put_off(A, now=1.1, scouted=True) == Position("09:00", 0)
    made = lanes(A)
    claimed(made, A, None, took=DEAR / 2, now=1.0)
    made.told("a", "09:00", now=1.1)
    assert made.since(A, now=1.1) is None


def test_what_was_due_since_the_question_stays() -> None:
    """An answer may be older than what somebody told, or than a claim."""
    made = lanes(A, B)
    made.told("a", "09:00", now=5.0)
    made.learn([Lane("c", 0)], asked=4.0)
    assert sorted(made.all()) == [A, Lane("c", 0)]
    made.learn([Lane("c", 0)], asked=6.0)
    assert made.all() == [Lane("c", 0)]


def test_lanes_come_and_go() -> None:
    """What is there still keeps its cursor; so does what comes again, which it may by being told of."""
    made = lanes(A, B)
    for lane in (A, B):
        claimed(made, lane, took=1.0)
        claimed(made, lane, took=1.0)
    made.learn([A])
    assert made.in_order() == [A]
    claimed(made, B)  # an answer that came too late
    made.learn([A, B])
    assert made.since(A, now=1.0) == made.since(B, now=1.0) == FIRST
    made.learn([])
    assert made.told("b", "12:00", now=0.0)
    assert made.in_order() == [B]
    assert made.since(B, now=1.0) == FIRST
    assert not made.told("c", now=0.0)


def test_after_a_reconnection_positions_mean_nothing() -> None:
    """It may be another server, with another clock."""
    made = lanes(A)
    claimed(made, A, took=1.0)
    claimed(made, A, took=1.0)
    made.forget_positions()
    assert made.in_order() == [A]
    assert made.since(A, now=1.0) is None
