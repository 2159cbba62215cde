"""How the queue is served: what waits and for whom, what fails, which leases are past. Pure: from what was read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dibs.dialects.doctor.examining import Ended, PastLease
from dibs.findings import Finding, Limits, fail, ok, warn
from dibs.register import WorkerRecord, alive

#: Of many names so many are shown.
SHOWN = 5


def unserved(waiting: Mapping[str, float], workers: Sequence[WorkerRecord], paused: set[str]) -> Finding:
    """Judge the queues by how long (seconds) their oldest job is due, and by who serves them."""
    seen = alive(workers)
    without = sorted(
        queue for queue in waiting if queue not in paused and all(worker.serves(queue) is False for worker in seen)
    )
    if without:
        oldest = max(waiting[queue] for queue in without)
        return fail(
            f"no worker is registered for {_names(without)}; the oldest job is due for {oldest:,.0f} s",
            "nothing of these queues runs",
            " ".join(["dibs worker", *(f"-q {queue}" for queue in without[:SHOWN])]),
        )
    return ok(f"{len(waiting)} queues have waiting work, {len(seen)} workers are registered")


def unknown(tasks: Iterable[str], workers: Sequence[WorkerRecord]) -> Finding:
    """Judge the tasks of what waits by who knows them. Without a worker nobody can tell: that is another check's."""
    seen = alive(workers)
    names = sorted(set(tasks))
    strange = [task for task in names if all(worker.knows(task) is False for worker in seen)] if seen else []
    if strange:
        return fail(
            f"no worker knows {_names(strange)}",
            "these jobs wait until one does: the code is not deployed, or the task has another name now",
            "deploy the code, or name the old one: @app.task(aliases=[…]). What is not wanted any more: "
            f"dibs cancel --task {strange[0]}",
        )
    return ok(
        f"{len(names)} tasks wait, each is known" if seen else f"{len(names)} tasks wait, there is no worker to ask"
    )


def expired(past: Sequence[PastLease]) -> Finding:
    """Judge leases that are past: upkeep takes them back within two lengths of the lease."""
    late = [each for each in past if each.past > 2 * each.lease]
    if late:
        owners = [owner for owner, _ in Counter(each.owner for each in late).most_common()]
        return fail(
            f"{len(late):,} leases of {_names(owners)} are past by up to {max(each.past for each in late):,.0f} s",
            "their jobs are run by nobody and were not taken back: workers do that, so none works",
            "dibs workers, then start one: dibs worker",
        )
    return ok(f"{len(past)} are past, none for long")


def leases(newest: Sequence[Ended]) -> Finding:
    """Judge the length of leases: runs that are longer go well as long as the worker can renew."""
    ran = [each for each in newest if each.ran is not None and each.lease]
    long = [each for each in ran if each.ran is not None and each.lease is not None and each.ran > each.lease]
    if lost := [each for each in long if each.crashes]:
        worst = max(lost, key=lambda each: each.ran or 0.0)
        tasks = [task for task, _ in Counter(each.task for each in lost).most_common()]
        return warn(
            f"{len(lost):,} of the newest {len(newest):,} jobs ran longer than their lease and lost one before: "
            f"{_names(tasks)}, up to {worst.ran:,.0f} s with a lease of {worst.lease:g} s",
            "a worker that can't renew in time (code that holds the interpreter, a machine that sleeps) has its job run twice",
            'a longer --lease, or runs_in="process" for the task',
        )
    longest = max((each.ran or 0.0 for each in ran), default=0.0)
    renewed = f"; {len(long):,} ran longer than their lease, which was renewed" if long else ""
    return ok(f"the longest of the newest {len(newest):,} took {longest:,.1f} s{renewed}")


def failures(newest: Sequence[Ended], limits: Limits) -> Finding:
    """Judge how many of the newest jobs failed, and how many are tried again."""
    ended = [each for each in newest if each.status in ("done", "failed")]
    failed = [each for each in ended if each.status == "failed"]
    retried = [each for each in newest if each.status == "ready" and each.attempts > 0]
    found = (
        f"of the newest {len(newest):,} jobs {len(ended):,} ended, {len(failed):,} of these failed; "
        f"{len(retried):,} wait to be tried again"
    )
    if len(ended) >= limits.enough and len(failed) > limits.failing * len(ended):
        return warn(f"{found}: {_often(failed)}", "a task or what it depends on is broken", "dibs failed")
    if len(newest) >= limits.enough and len(retried) > limits.retrying * len(newest):
        return warn(
            f"{found}: {_often(retried)}",
            "what they depend on is likely to be down: each try costs a slot",
            f"dibs jobs --status ready --task {_commonest(retried)[0]}; dibs show ID has the errors",
        )
    return ok(found)


def _commonest(jobs: Iterable[Ended]) -> list[str]:
    return [task for task, _ in Counter(each.task for each in jobs).most_common()]


def _often(jobs: Sequence[Ended]) -> str:
    return f"mostly {_names(_commonest(jobs))}"


def _names(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")
