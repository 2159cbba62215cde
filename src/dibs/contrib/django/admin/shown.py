"""What a job looks like in the admin."""

from __future__ import annotations

import json
from typing import Any

from django.utils.html import format_html, format_html_join

from dibs.contrib.django import app
from dibs.contrib.django.models import Job
from dibs.secrets import masked, unstamped

_PRE = '<pre style="white-space: pre-wrap; margin: 0; max-height: 40em; overflow: auto">{}</pre>'


def arguments(job: Job) -> Any:
    """Return a job's arguments, the secret ones masked: those that the row names, and those of the code as it is now."""
    _, secret = unstamped(job.meta)
    task = app.task_named(job.task)
    if task is not None and task.signature.has_secrets and isinstance(job.payload, dict):
        secret = [*secret, *task.signature.secrets_in(job.payload)]
    return as_json(masked(job.payload, secret))


def beside(job: Job) -> Any:
    """Return what hooks put beside the arguments."""
    return as_json(unstamped(job.meta)[0])


def as_json(value: Any) -> Any:
    """Return a value as JSON that a person can read."""
    return "-" if value is None else format_html(_PRE, json.dumps(value, indent=2, ensure_ascii=False))


def last_errors(job: Job) -> Any:
    """Return the errors that the row keeps, the last one first, and the reason of its end where that is another."""
    kept = [
        (f"attempt {entry.get('attempt')} {entry.get('at', '')[:19]}", entry.get("error", ""))
        for entry in job.errors or []
    ]
    shown = [(title, format_html(_PRE, error)) for title, error in reversed(kept)]
    if job.error and all(error != job.error for _, error in kept):
        shown.insert(0, ("", format_html(_PRE, job.error)))
    return format_html_join("", "<div><strong>{}</strong>{}</div>", shown) if shown else "-"
