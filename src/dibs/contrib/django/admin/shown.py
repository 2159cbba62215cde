"""What a job looks like in the admin."""

from __future__ import annotations

import json
from typing import Any

from django.utils.html import format_html, format_html_join

from dibs.contrib.django import app
from dibs.contrib.django.models import Job
from dibs.secrets import ELSEWHERE, concealed, unstamped

_PRE = '<pre style="white-space: pre-wrap; margin: 0; max-height: 40em; overflow: auto">{}</pre>'


def concealed_fields(job: Job) -> dict[str, Any]:
    """Return what may be shown of a job: its secrets are those that the row names, and those of the code as it is now."""
    meta, secret = unstamped(job.meta)
    task = app.task_named(job.task)
    if task is not None and task.signature.has_secrets:
        secret = [*secret, *task.signature.secrets_in(job.payload if isinstance(job.payload, dict) else ())]
    fields = {name: getattr(job, name) for name in ("payload", *ELSEWHERE)}
    return concealed({**fields, "meta": meta}, secret)


def key(job: Job) -> Any:
    """Return a job's key. Only of tasks with secrets, from which it may have been made, the arguments are read."""
    task = app.task_named(job.task)
    if job.task_key is None or task is None or not task.signature.has_secrets:
        return job.task_key
    return concealed_fields(job)["task_key"]


def as_json(value: Any) -> Any:
    """Return a value as JSON that a person can read."""
    return "-" if value is None else format_html(_PRE, json.dumps(value, indent=2, ensure_ascii=False))


def last_errors(job: Job) -> Any:
    """Return the errors that the row keeps, the last one first, and the reason of its end where that is another."""
    fields = concealed_fields(job)
    kept = [
        (f"attempt {entry.get('attempt')} {entry.get('at', '')[:19]}", entry.get("error", ""))
        for entry in fields["errors"] or []
    ]
    shown = [(title, format_html(_PRE, error)) for title, error in reversed(kept)]
    if fields["error"] and all(error != fields["error"] for _, error in kept):
        shown.insert(0, ("", format_html(_PRE, fields["error"])))
    return format_html_join("", "<div><strong>{}</strong>{}</div>", shown) if shown else "-"
