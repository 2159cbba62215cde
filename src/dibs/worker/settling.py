"""Settling: from outcomes to what the database says about them.

What can't be written now (a database that is away, a row that somebody's transaction holds) is kept and tried again;
meanwhile the leases are renewed elsewhere. 0 rows changed is looked into: settled already, locked, or lost.

Where the database takes several writers at a time this goes on in a thread of its own, beside the claims (`Settler`);
otherwise between two claims.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from dibs.app import Dibs
from dibs.errors import (
    DatabaseError,
    DatabaseUnavailable,
    MissingPrivilege,
    OutcomeUnknown,
    ReadOnlyDatabase,
    SchemaError,
)
from dibs.jobs import Settled, Verdict
from dibs.logs import CLAIM
from dibs.ops import Op
from dibs.retries import DAY
from dibs.states import State
from dibs.store import RowLocked, Store
from dibs.worker.health import Beat
from dibs.worker.losing import find_owners, refuse_gone
from dibs.worker.outage import Outage
from dibs.worker.progress import write_progress
from dibs.worker.runs import Holdings, Run
from dibs.worker.scrubbing import scrub_of
from dibs.worker.tally import Tally
from dibs.worker.telling import end_of, tell_settled
from dibs.worker.verdicts import Misfit, Outcome, Raised, Returned, Rules, decide, done, shorten

logger = logging.getLogger("dibs")

#: Verdicts in one statement, at most.
BATCH = 500

#: While the slots have work waiting, outcomes are gathered for this long (seconds), or until there are that many.
GATHER = 0.01
GATHERED = 125

#: Settling in haste waits for a locked row so long (seconds). After one that is held for longer, rows are locked before they
#: are written, and those that can't be are left for later, until none was found for so long.
HASTE = 0.05
AT_LEISURE = 2.0

#: The settler comes round this often (seconds) at least, so that it is seen to be alive.
LONGEST_WAIT = 5.0

#: Characters of an error in the log, at most; the rest is with the job.
LONGEST_LOGGED = 500

#: What is not about one job, but would meet any other too.
ABOUT_ALL = (DatabaseUnavailable, MissingPrivilege, ReadOnlyDatabase, SchemaError)

Entry = tuple[Run, Verdict]
T = TypeVar("T")


class Settling:
    """Takes outcomes from any thread (`report`) and carries their verdicts out in one (`settle`)."""

    def __init__(
        self,
        app: Dibs,
        store: Store,
        *,
        worker: str,
        holdings: Holdings,
        ring: Callable[[], None],
        tally: Tally,
    ) -> None:
        """`ring` lets the one that settles look at what there is; `tally` counts how each run that had begun has ended."""
        self._app = app
        self._store = store
        self._dialect = app.dialect
        self._worker = worker
        self._holdings = holdings
        self.ring = ring
        self._tally = tally
        self.given_back = 0  # claims that ended without having begun
        self._dice = random.Random()
        self._outbox: deque[Entry] = deque()
        self._locked: list[tuple[float, Entry]] = []  # when to try again, and what
        self._taking, self._counting = threading.Lock(), threading.Lock()  # what is simply done, two threads may settle
        self._last = 0.0
        self._haste_at = 0.0  # monotonic: until then rows are locked before they are written
        self.met_lock: Callable[[], None] = lambda: None  # called when a row was found locked

    def report(self, run: Run, outcome: Outcome) -> None:
        """Take the outcome of a run; the first one counts."""
        if not run.report_once():
            logger.warning("job %d: the result of %s came too late and was dropped", run.claim.id, run.task.name)
            return
        self._outbox.append((run, verdict_of(self._app, run, outcome, dice=self._dice)))
        if len(self._outbox) in (1, GATHERED):  # in between it knows already, and waits for more
            self.ring()

    def __len__(self) -> int:
        """How many outcomes wait to be written down."""
        return len(self._outbox)

    def next_looks(self) -> list[float]:
        """Return when (monotonic) there is something to settle; empty where nothing waits for it."""
        return [at for at, _ in self._locked] + ([self._last + GATHER] if self._outbox else [])

    def settle(self, *, gather: bool) -> None:
        """Carry verdicts out; with `gather` not before a good number of them is there, or some time has passed."""
        now = time.monotonic()
        due = [entry for at, entry in self._locked if at <= now]
        self._locked = [(at, entry) for at, entry in self._locked if at > now]
        while due or self._outbox:
            if gather and not due and len(self._outbox) < GATHERED and now - self._last < GATHER:
                return
            due += self._take(BATCH - len(due), beside={verdict.id for _, verdict in due})
            try:
                self._settle_batch(due)
            except Exception:  # an error of our own, too: what has ended must not be forgotten
                unsettled = [entry for entry in due if entry[0].claim.id in self._holdings]
                locked = {id(entry[0]) for _, entry in self._locked}
                self._put_back([entry for entry in unsettled if id(entry[0]) not in locked])
                raise
            due = []
            now = self._last = time.monotonic()

    def _take(
        self, most: int, *, beside: Iterable[int] = (), which: Callable[[Entry], bool] | None = None
    ) -> list[Entry]:
        """Take the first of the outbox, up to one that is not wanted.

        Of two claims of one job, the earlier of which is lost, each is settled by itself: answers go by the job.
        """
        ids = set(beside)
        taken: list[Entry] = []
        with self._taking:
            while self._outbox and len(taken) < most:
                entry = self._outbox[0]
                if entry[1].id in ids or (which is not None and not which(entry)):
                    break
                ids.add(entry[1].id)
                taken.append(self._outbox.popleft())
        return taken

    def _put_back(self, entries: Sequence[Entry]) -> None:
        with self._taking:
            self._outbox.extendleft(reversed(entries))

    def carry(self, ask: Callable[[Sequence[Verdict]], tuple[Mapping[int, Settled], T]], most: int) -> T | None:
        """Have up to `most` outcomes settled by what `ask` does, together with something else; return what came of that.

        Only of jobs that simply are done, and that was never asked before. None where there is none of those. What is
        not settled so, since it has no answer or since `ask` raised something, waits to be settled by itself.
        """
        entries = self._take(most, which=_simple)
        if not entries:
            return None
        try:
            answers, other = ask([verdict for _, verdict in entries])
        except BaseException as error:
            for run, _ in entries:
                run.asked = isinstance(error, OutcomeUnknown)  # else nothing has changed
            self._put_back(entries)
            raise
        settled = [(run, verdict) for run, verdict in entries if verdict.id in answers]
        self._put_back([(run, verdict) for run, verdict in entries if verdict.id not in answers])
        self._take_notes(settled, answers)
        self._tell(settled, answers)
        return other

    def _tell(self, entries: Sequence[Entry], answers: Mapping[int, Settled]) -> None:
        if self._app.events.handlers:
            told = [(run, verdict, answers[verdict.id]) for run, verdict in entries]
            tell_settled(self._app, self._store, told, worker=self._worker)

    def _settle_batch(self, batch: Sequence[Entry]) -> None:
        write_progress(self._store, [run for run, _ in batch], worker=self._worker)
        try:
            answers, new = self._carry_out(batch)
        except ABOUT_ALL:
            raise
        except Exception as error:  # noqa: BLE001 - a driver's own, too, such as for a text that it can't send
            # Something about one of them: the others must not wait for it.
            if len(batch) > 1:
                for entry in batch:
                    self._settle_batch([entry])
            else:
                self._settle_bare(*batch[0], error)
            return
        answers = refuse_gone(self._store, answers, new, worker=self._worker)
        lost = [run for run, verdict in batch if answers[verdict.id] is Settled.LOST]
        find_owners(self._store, lost, worker=self._worker)
        self._take_notes(batch, answers)
        self._tell(batch, answers)

    def _carry_out(self, batch: Sequence[Entry]) -> tuple[dict[int, Settled], list[Run]]:
        """Settle in haste, unless a row was found locked of late. Return the answers, and whose are to the first question:
        of an op that is tried again the first may have been carried out, unheard."""
        verdicts = [verdict for _, verdict in batch]
        new: list[Run] = []

        def settle(haste: float | None) -> Op[dict[int, Settled]]:
            new[:] = [run for run, _ in batch if not run.asked]
            for run in new:
                run.asked = True
            return self._dialect.settle(verdicts, worker=self._worker, haste=haste)

        if time.monotonic() >= self._haste_at:
            try:
                return self._store.run(lambda: settle(HASTE), haste=True), new
            except RowLocked:
                for run in new:
                    run.asked = False  # nothing has changed
                self.met_lock()
        answers = self._store.run(lambda: settle(None))
        if Settled.LOCKED in answers.values():
            self._haste_at = time.monotonic() + AT_LEISURE
            self.met_lock()
        return answers, new

    def _settle_bare(self, run: Run, verdict: Verdict, error: Exception) -> None:
        """Settle a job whose verdict the database refuses, without what may be the reason: texts, or the deletion."""
        logger.error("job %d: its end could not be stored in full: %s", verdict.id, error)
        bare = Verdict(
            id=verdict.id,
            claims=verdict.claims,
            status=verdict.status,
            attempts=verdict.attempts,
            releases=verdict.releases,
            delay=verdict.delay,
            ran=verdict.ran,
            keep=verdict.keep or DAY,
            error="its error could not be stored" if verdict.error else None,
        )
        answers = self._store.run(lambda: self._dialect.settle([bare], worker=self._worker))
        if answers[bare.id] is Settled.LOST:
            find_owners(self._store, [run], worker=self._worker)
        self._take_note(run, bare, answers[bare.id])
        tell_settled(self._app, self._store, [(run, bare, answers[bare.id])], worker=self._worker)

    def _take_notes(self, entries: Sequence[Entry], answers: Mapping[int, Settled]) -> None:
        """Take note of what became of these; of those that simply are done, as nearly all are, together."""
        simple: list[Run] = []
        others: list[Entry] = []
        for run, verdict in entries:
            is_done = verdict.status is State.DONE and answers[verdict.id] is Settled.NOW
            if is_done and run.begun is not None and not run.cancelling:
                simple.append(run)
            else:
                others.append((run, verdict))
        self._holdings.drop(simple)
        with self._counting:
            for run in simple:
                self._tally.ended(run, "done")
        if logger.isEnabledFor(logging.DEBUG):
            for run in simple:
                logger.debug("job %d: %s done", run.claim.id, run.claim.task, extra={CLAIM: run.claim})
        for run, verdict in others:
            self._take_note(run, verdict, answers[verdict.id])

    def _take_note(self, run: Run, verdict: Verdict, settled: Settled) -> None:
        if settled is Settled.LOCKED:
            run.asked = False  # it was not carried out
            # All at one moment: 500 that were locked for a moment are then one statement more, and not 500.
            at = self._locked[0][0] if self._locked else time.monotonic() + self._dice.uniform(0.1, 0.3)
            self._locked.append((at, (run, verdict)))
            return
        self._holdings.drop([run])
        claim = run.claim
        of_job = {CLAIM: claim}
        if run.begun is None:
            self.given_back += 1
        else:
            with self._counting:
                self._tally.ended(run, "cancelled" if run.cancelling else end_of(run, verdict, settled))
        if settled is Settled.LOST:
            logger.warning(
                "job %d: lost: its lease ran out, and %s; what %s gave is refused",
                claim.id,
                run.lost_to,
                claim.task,
                extra=of_job,
            )
        elif settled is Settled.ALREADY:
            logger.debug("job %d: %s was settled already", claim.id, claim.task, extra=of_job)
        elif run.cancelling:
            logger.info("job %d: %s was cancelled by a person", claim.id, claim.task, extra=of_job)
        elif verdict.status is State.FAILED:
            self._tally.erred(run, last_line(verdict.error))
            logger.error("job %d: %s failed: %s", claim.id, claim.task, last_line(verdict.error), extra=of_job)
        elif verdict.status is State.READY and run.misfit:
            said = "job %d is released for %.3g s, for a worker whose code fits it: %s"
            about = claim.id, verdict.delay, last_line(verdict.error)
            self._app.warn_once(f"misfit {claim.task}", f"{said} (further ones of this task: at DEBUG)", *about)
            logger.debug(said, *about, extra=of_job)
        elif verdict.status is State.READY and verdict.error:
            self._tally.erred(run, last_line(verdict.error))
            logger.warning(
                "job %d: attempt %d of %d of %s failed, again in %.0f s: %s",
                claim.id,
                verdict.attempts,
                claim.max_attempts,
                claim.task,
                verdict.delay,
                last_line(verdict.error),
                extra=of_job,
            )
        else:
            logger.debug("job %d: %s %s", claim.id, claim.task, verdict.status, extra=of_job)


class Settler:
    """Settles in a thread of its own."""

    def __init__(
        self,
        settling: Settling,
        store: Store,
        outage: Outage,
        *,
        gather: Callable[[], bool],
        settled: Callable[[], None],
    ) -> None:
        """`gather` says whether more outcomes are to come soon; `settled` is called after each look."""
        self._settling = settling
        self._store = store
        self._outage = outage
        self._refusals = Outage(
            refused=outage.refused
        )  # of what others may still do, and would take for the end of an outage
        self._gather = gather
        self._settled = settled
        self.beat = Beat(store)
        self._bell = threading.Event()
        self._closing = False
        self.ring = settling.ring = self._bell.set
        self._thread = threading.Thread(target=self._loop, name="dibs-settler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        self._bell.set()
        self._thread.join(timeout=2)

    def _loop(self) -> None:
        self._connect()
        while not self._closing:
            self._bell.clear()
            self.beat()
            wait: float | None = None
            try:
                self._settling.settle(gather=self._gather())
                self._refusals.over(self._store.contact)
            except (DatabaseUnavailable, ReadOnlyDatabase) as error:
                wait = self._outage.failed(error)
            except DatabaseError as error:
                wait = self._refusals.failed(error)
            except Exception:
                logger.exception("the settler met an error of its own; it goes on")
                wait = 1.0
            self._settled()
            if wait is None:
                looks = self._settling.next_looks()
                wait = max(min(looks) - time.monotonic(), 0.0) if looks else LONGEST_WAIT
            self._bell.wait(wait)

    def _connect(self) -> None:
        """Have a connection before there is anything to settle: if the tables declare this code too old meanwhile, what has
        run can still be written down."""
        try:
            self._store.run(self._store.dialect.time)
        except DatabaseError as error:
            self._outage.failed(error)


def _simple(entry: Entry) -> bool:
    run, verdict = entry
    return verdict.plain and not run.asked and run.progress is run.written


def verdict_of(
    app: Dibs, run: Run, outcome: Outcome, *, dice: random.Random, max_releases: int | None = None
) -> Verdict:
    """Return what is done about the outcome of a run, by its task's rules."""
    if isinstance(outcome, Returned):
        if not run.finished:
            return done(run.claim, outcome, ran=run.ran())
        # Settled by the task itself, if its transaction was committed; only if not does this verdict apply.
        error = RuntimeError("finish() was called, but its transaction was not committed: its writes are not there")
        outcome = Raised(error)
    options = run.task.options
    scrub = scrub_of(run.task, run.claim)
    releases = app.max_releases if max_releases is None else max_releases
    rules = Rules(options.backoff, releases, options.fail_on, options.retry_on, scrub, app.misfit_wait)
    run.misfit = isinstance(outcome, Misfit)
    ran, at = run.ran(), run.database_now()

    def verdict(outcome: Outcome) -> Verdict:
        if app.events.handlers and isinstance(outcome, Raised) and outcome.text is None:
            run.exception = outcome.error  # of one from another process there is only the text
        return decide(run.claim, outcome, rules, ran=ran, at=at, dice=dice)

    try:
        return verdict(outcome)
    except BaseException as error:  # noqa: BLE001 - a signal too odd to be read; its job must not hang on it
        return verdict(Raised(error))


def last_line(error: str | None) -> str:
    """Return what the log says of an error: the last line that says anything."""
    # A group of exceptions ends with a line that is drawn.
    lines = [line for line in (error or "").splitlines() if line.strip(" |+-")]
    return shorten(lines[-1], LONGEST_LOGGED) if lines else "no reason given"
