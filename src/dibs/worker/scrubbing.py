"""What cleans the error texts of one job: its secret arguments are masked, then the app's own `scrub` sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dibs.jobs import Claim, Waiting
from dibs.secrets import NAMES, scrubbed, unstamped, without
from dibs.stored import value_of
from dibs.tasks import Task

Scrub = Callable[[str], str]


def scrub_of(task: Task[Any, Any], claim: Claim | Waiting) -> Scrub | None:
    """Return what cleans the texts of this job; None where there is nothing to clean, which costs next to nothing."""
    is_stamped = claim.meta is not None and NAMES in claim.meta
    if not (is_stamped or task.app.scrub or task.signature.has_secrets):
        return None

    def scrub(text: str) -> str:
        named = unstamped(value_of(claim.meta))[1] if is_stamped and claim.meta else []
        text = without(text, claim.payload, lambda name: name in named or task.signature.is_secret(name))
        return scrubbed(text, task.app.scrub)

    return scrub
