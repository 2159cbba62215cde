"""Queues in the admin: what is in them, and a page of its own to pause and resume them, since most have no row."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from dibs.contrib.django import app
from dibs.contrib.django.admin.looking import LookingAdmin
from dibs.errors import InvalidArgument
from dibs.states import State


class QueueAdmin(LookingAdmin):
    """Whoever may change queues may pause and resume them; whoever may view them sees them."""

    def _may_steer(self, request: Any) -> bool:
        return bool(request.user.has_perm("dibs.change_queue"))

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self._steer(request)
        context = {
            **self.admin_site.each_context(request),
            "title": "Queues",
            "opts": self.opts,
            "queues": _queues(),
            "statuses": list(State),
            "jobs_url": reverse(f"{self.admin_site.name}:dibs_job_changelist"),
            "may_steer": self._may_steer(request),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/dibs/queue/change_list.html", context)

    def change_view(self, request: Any, object_id: str, form_url: str = "", extra_context: Any = None) -> Any:
        return HttpResponseRedirect(reverse(f"{self.admin_site.name}:dibs_queue_changelist"))

    def _steer(self, request: Any) -> Any:
        if not self._may_steer(request):
            raise PermissionDenied
        by = f"{request.user.get_username()}, in the admin"
        for queue in request.POST.getlist("queue"):
            try:
                if request.POST.get("action") == "pause":
                    changed, done = app.pause(queue, by=by), "Paused"
                else:
                    changed, done = app.resume(queue), "Resumed"
            except InvalidArgument as error:
                self.message_user(request, str(error), messages.ERROR)
                continue
            text = f"{done} {queue}" if changed else f"{done} already: {queue}"
            self.message_user(request, text, messages.SUCCESS if changed else messages.WARNING)
        return HttpResponseRedirect(request.path)


def _queues() -> list[dict[str, Any]]:
    """Return each queue that has jobs, that is paused, or that a task is for."""
    app.load()
    counts = app.counts()
    paused = {queue: (at, by) for queue, at, by in app.store.run(app.dialect.paused)}
    names = {*counts, *paused, *(task.options.queue for task in app.tasks.values())}
    return [
        {
            "queue": name,
            "counts": [(state, counts.get(name, {}).get(state, 0)) for state in State],
            "paused_at": paused[name][0] if name in paused else None,
            "paused_by": paused[name][1] if name in paused else None,
        }
        for name in sorted(names)
    ]
