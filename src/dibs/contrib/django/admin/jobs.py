"""Jobs in the admin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from django.contrib import admin, messages

from dibs.contrib.django import app
from dibs.contrib.django.admin import shown
from dibs.contrib.django.admin.lists import NearPaginator, QueueFilter, TaskFilter
from dibs.contrib.django.admin.looking import LookingAdmin
from dibs.contrib.django.models import Job
from dibs.errors import KeyTaken

#: What may be large, and is not read for the list.
_LARGE = ("payload", "result", "error", "errors", "cancel_reason", "meta", "progress", "checkpoint")

#: Jobs that are changed in one transaction.
_CHUNK = 1000


class JobAdmin(LookingAdmin):
    """Whoever may change jobs may cancel and requeue them; whoever may view them sees them."""

    list_display = ("id", "status", "queue", "task", "tried", "run_at", "finished_at", "key")
    list_filter = ("status", QueueFilter, TaskFilter, "created_at")
    search_fields = ("task_key",)
    search_help_text = "An id, or a whole key"
    ordering = ("-id",)
    list_per_page = 50
    show_full_result_count = False
    paginator = NearPaginator
    actions = ("cancel", "requeue")
    fieldsets = (
        (None, {"fields": ("id", "task", "status", "queue", "priority", "key", "arguments")}),
        (
            "When",
            {"fields": ("created_at", "run_at", "started_at", "finished_at", "expires_at")},
        ),
        ("To be cancelled", {"fields": ("cancel_requested_at", "cancel_requested_by", "reason")}),
        ("Attempts", {"fields": ("tried", "crashes", "releases", "lease_owner", "lease_until", "last_errors")}),
        ("What it gave", {"fields": ("returned", "progress_so_far", "last_checkpoint", "beside")}),
    )
    readonly_fields = (
        "key",
        "reason",
        "arguments",
        "tried",
        "last_errors",
        "returned",
        "progress_so_far",
        "last_checkpoint",
        "beside",
    )

    def has_operate_permission(self, request: Any) -> bool:
        return bool(request.user.has_perm("dibs.change_job"))

    def get_queryset(self, request: Any) -> Any:
        queryset = super().get_queryset(request)
        listed = request.resolver_match is None or request.resolver_match.url_name.endswith("_changelist")
        return queryset.defer(*_LARGE) if listed else queryset

    def get_search_results(self, request: Any, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Search by equality alone."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if term.isascii() and term.isdigit() and len(term) < 19:
            by_id = queryset.filter(pk=int(term))
            return (by_id if by_id.exists() else queryset.filter(task_key=term)), False
        return queryset.filter(task_key=term), False

    # -- orders -----------------------------------------------------------------------------------

    @admin.action(description="Cancel", permissions=["operate"])
    def cancel(self, request: Any, queryset: Any) -> None:
        by = request.user.get_username()
        reason = f"by {by}, in the admin"
        self._order(request, queryset, lambda ids: app.cancel(ids, reason=reason, by=by), "cancelled", "ended already")

    @admin.action(description="Requeue", permissions=["operate"])
    def requeue(self, request: Any, queryset: Any) -> None:
        def requeue(ids: list[int]) -> list[int]:
            try:
                return app.requeue(ids)
            except KeyTaken as taken:
                self.message_user(request, str(taken), messages.WARNING)
                return taken.moved

        self._order(request, queryset, requeue, "requeued", "not failed or cancelled")

    def _order(
        self, request: Any, queryset: Any, order: Callable[[list[int]], list[int]], done: str, otherwise: str
    ) -> None:
        asked, moved = 0, set[int]()
        for ids in _chunks(queryset.order_by("pk").values_list("pk", flat=True).iterator(_CHUNK)):
            asked += len(ids)
            moved.update(order(ids))
            for job in Job.objects.filter(pk__in=moved.intersection(ids)).only("id", "task"):
                self.log_change(request, job, done)
        if moved:
            self.message_user(request, f"{len(moved)} {done}", messages.SUCCESS)
        if asked > len(moved):
            self.message_user(request, f"{asked - len(moved)} left as they are: {otherwise}", messages.WARNING)

    # -- columns ----------------------------------------------------------------------------------

    @admin.display(description="attempts")
    def tried(self, job: Job) -> str:
        return f"{job.attempts} of {job.max_attempts}"

    @admin.display
    def key(self, job: Job) -> Any:
        return shown.key(job)

    @admin.display
    def reason(self, job: Job) -> Any:
        return shown.concealed_fields(job)["cancel_reason"]

    @admin.display
    def arguments(self, job: Job) -> Any:
        return shown.as_json(shown.concealed_fields(job)["payload"])

    @admin.display(description="errors")
    def last_errors(self, job: Job) -> Any:
        return shown.last_errors(job)

    @admin.display(description="result")
    def returned(self, job: Job) -> Any:
        return shown.as_json(shown.concealed_fields(job)["result"])

    @admin.display(description="progress")
    def progress_so_far(self, job: Job) -> Any:
        return shown.as_json(shown.concealed_fields(job)["progress"])

    @admin.display(description="checkpoint")
    def last_checkpoint(self, job: Job) -> Any:
        return shown.as_json(shown.concealed_fields(job)["checkpoint"])

    @admin.display(description="meta")
    def beside(self, job: Job) -> Any:
        return shown.as_json(shown.concealed_fields(job)["meta"])


def _chunks(ids: Iterator[int]) -> Iterator[list[int]]:
    while chunk := list(islice(ids, _CHUNK)):
        yield chunk
