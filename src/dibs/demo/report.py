"""What the demo says at its end: to a person, in words; to a program, as one JSON object."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections import Counter
from dataclasses import dataclass

from dibs.app import Dibs
from dibs.demo.demonstration import Course, count
from dibs.demo.files import Listing
from dibs.demo.folder import Folder
from dibs.demo.proof import Proof


def figures(proof: Proof, course: Course) -> dict[str, int | float]:
    """Return what `--json` prints."""
    return {
        "files": proof.files,
        "results": proof.results,
        "verified": proof.verified,
        "lost": proof.lost,
        "doubled": proof.doubled,
        "killed": proof.killed,
        "rerun": proof.rerun,
        "duplicates": proof.duplicates,
        "seconds": round(course.seconds, 3),
        "jobs_per_second": round(proof.files / course.seconds, 1),
    }


def skipped(listing: Listing) -> str:
    """Return one line about what is in the directory and was left out; empty if that is nothing."""
    return ", ".join(f"{what}: {number:,}" for what, number in sorted(listing.skipped.items()))


#: A pause (seconds) in each job that is worth mentioning.
NOTICEABLE = 0.02


@dataclass(frozen=True, slots=True)
class Report:
    """The demo's end, for a person to read."""

    proof: Proof
    course: Course
    listing: Listing
    folder: Folder
    app: Dibs

    def lines(self) -> list[str]:
        proof, course = self.proof, self.course
        size = sum(source.size for source in self.listing.files) / 1e6
        table = [
            ("files in", f"{proof.files:,}", f"{size:,.1f} MB, from {self.listing.root}"),
            ("results out", f"{proof.results:,}", f"in {self.folder.results}"),
            ("verified", f"{proof.verified:,}", "unpacked again and compared with their sources (SHA-256)"),
            ("lost", f"{proof.lost:,}", "files without a verified result, or whose job is not done"),
            ("doubled", f"{proof.doubled:,}", "files with two jobs, or whose job was finished and then run once more"),
            ("killed", f"{proof.killed:,}", self._killed()),
            ("run again", f"{proof.rerun:,}", self._run_again()),
            ("duplicates", f"{proof.duplicates:,}", "everything was enqueued a second time and refused by its key"),
            ("seconds", f"{course.seconds:.1f}", f"{proof.files / course.seconds:,.1f} jobs per second"),
        ]
        width = max(len(figure) for _, figure, _ in table)
        lines = ["", *(f"  {name:<11}  {figure:>{width}}  {words}" for name, figure, words in table), ""]
        lines += self._remarks()
        lines += ["", *self._afterwards()]
        return lines

    def _killed(self) -> str:
        kill = self.course.kill
        if kill is None:
            return ""
        held = count(len(kill.held), "job")
        return f"worker {kill.worker} (pid {kill.pid}) got SIGKILL while it held {held}, {self.proof.begun:,} of them begun"

    def _run_again(self) -> str:
        proof, course = self.proof, self.course
        if not proof.rerun or course.back_after is None:
            return ""
        back = f"the begun ones: back in the queue after {course.back_after:.1f} s, and run by another worker"
        return f"{back}; {_attempts(proof.attempts)}"

    def _remarks(self) -> list[str]:
        proof, course = self.proof, self.course
        remarks = []
        if proof.unrecorded:
            remarks.append(
                f"{count(proof.unrecorded, 'job')} of those run again had just written the result when the worker was "
                "killed, before it could say so: no queue can know that, so a task must bear being run again"
            )
        if proof.attempts[1]:
            remarks.append(
                f"{count(proof.attempts[1], 'job')} of those run again cost one attempt: the worker was killed before "
                "the database had heard that they had begun"
            )
        if proof.changed:
            remarks.append(f"{count(proof.changed, 'file')} changed or vanished while the demo ran and are left out")
        if self.listing.skipped:
            remarks.append(f"not taken: {skipped(self.listing)}")
        if course.pause > NOTICEABLE:
            remarks.append(f"each job also waited {course.pause:.2f} s, so that so few files take long enough to watch")
        if not proof.problems:
            remarks.append(
                "A worker was killed in the middle of its work, and nothing was lost and nothing done twice."
            )
        return remarks

    def _afterwards(self) -> list[str]:
        dibs = f"{_program()} --url {shlex.quote(str(self.app.url))}"
        secret = "   (with the password in the URL)" if self.app.url.password else ""
        return [
            f"the queue   {dibs} status{secret}",
            f"its jobs    {dibs} jobs --queue {self.course.queue}",
            "Nothing is left running. In an hour the jobs may be pruned: by `dibs prune`, or by any worker.",
        ]


def _program() -> str:
    """Return what to type for `dibs` here, where it may not be on the PATH."""
    started = sys.argv[0]
    if os.path.basename(started) == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m dibs"
    on_path = shutil.which("dibs")
    if on_path is not None and os.path.realpath(on_path) == os.path.realpath(started):
        return "dibs"
    return shlex.quote(started)


def _attempts(attempts: Counter[int]) -> str:
    if len(attempts) == 1:
        (used,) = attempts
        return f"attempts used: {used}"
    return ", ".join(f"{jobs:,} used {count(used, 'attempt')}" for used, jobs in sorted(attempts.items()))
