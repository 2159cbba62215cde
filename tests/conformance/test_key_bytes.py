"""Keys and names compare byte by byte: what looks alike is not the same."""

from __future__ import annotations

import pytest

from conformance.hands import Queue, new_job

ALIKE = [
    ("case", "Order", "order"),
    ("a trailing space", "a", "a "),
    ("a leading space", "a", " a"),
    ("an accent", "resume", "résumé"),
    ("composed and decomposed", "é", "e\u0301"),
    ("sharp s", "strasse", "straße"),
    ("Turkish i", "I", "ı"),
    ("emoji", "🍏", "🍎"),
    ("skin tones", "👍", "👍🏽"),
    ("zero width", "ab", "a\u200bb"),
    ("full width", "a", "ａ"),
    ("a line break", "a", "a\n"),
    ("a tab", "a", "a\t"),
    ("a soft hyphen", "ab", "a\u00adb"),
    ("hiragana and katakana", "は", "ハ"),
]


@pytest.mark.parametrize(("first", "second"), [pair[1:] for pair in ALIKE], ids=[pair[0] for pair in ALIKE])
def test_keys_that_look_alike_are_two(queue: Queue, first: str, second: str) -> None:
    """One at a time and in one bulk: two keys, two jobs, and each is a duplicate of itself alone."""
    one, two = queue.add(key=first), queue.add(key=second)
    assert one != two
    again = queue.enqueue(new_job(key=second), new_job(key=first))
    assert [(job.id, job.created) for job in again] == [(two, False), (one, False)]
    assert queue.keys() == {first: one, second: two}
    bulk = queue.enqueue(new_job(key=first, task="bulk"), new_job(key=second, task="bulk"))
    assert [job.created for job in bulk] == [True, True]


@pytest.mark.parametrize(
    "key", ["'", '"', "\\", "%s", "%(key)s", ":name", "?", "$1", "a'b\\'c", "{now}", "\x7f", "\x1f"]
)
def test_keys_that_look_like_sql(queue: Queue, key: str) -> None:
    """Nothing in a key means anything to a database or a driver."""
    first = queue.add(key=key, payload={"text": key})
    (again,) = queue.enqueue(new_job(key=key, payload={"text": key}))
    assert (again.id, again.created, again.differs) == (first, False, False)
    record = queue.record(first)
    assert (record.task_key, record.payload) == (key, {"text": key})


@pytest.mark.parametrize("letter", ["x", "ß", "🍏"])
def test_the_longest_key(queue: Queue, letter: str) -> None:
    """255 characters, of whichever width, and told apart in the last one."""
    stem = letter * 254
    first, second = queue.add(key=stem + "a"), queue.add(key=stem + "b")
    assert first != second
    assert not queue.enqueue(new_job(key=stem + "b"))[0].created


def test_queues_and_tasks_that_look_alike_are_two(queue: Queue) -> None:
    """A worker of one gets nothing of the other."""
    for name in ("Mail", "mail", "mail "):
        queue.add(queue=name, payload={"in": name})
        queue.add(task=name, payload={"of": name})
    assert [claim.payload for claim in queue.claim(queue="mail")] == ['{"in":"mail"}']
    assert [claim.payload for claim in queue.claim(tasks=["mail "])] == ['{"of":"mail "}']
    assert queue.app.counts()["mail "] == {"ready": 1}
    queue.app.pause("Mail")
    assert [claim.payload for claim in queue.claim(queue="mail ")] == ['{"in":"mail "}']
    assert queue.claim(queue="Mail") == []


@pytest.mark.parametrize("letter", ["q", "ß", "🍏"])
def test_the_longest_names(queue: Queue, letter: str) -> None:
    """200 characters of a queue's name and 255 of a task's, of whichever width."""
    name, task = letter * 200, letter * 255
    job_id = queue.add(queue=name, task=task, key=letter * 255)
    (claim,) = queue.claim(queue=name, tasks=[task])
    assert (claim.id, claim.queue, claim.task) == (job_id, name, task)
    assert queue.app.pause(name)
