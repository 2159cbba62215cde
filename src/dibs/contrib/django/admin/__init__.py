"""The admin: look at jobs and queues, cancel, requeue, pause and resume. Nothing can be added, edited or deleted."""

from __future__ import annotations

from django.contrib import admin

from dibs.contrib.django.admin.jobs import JobAdmin
from dibs.contrib.django.admin.queues import QueueAdmin
from dibs.contrib.django.models import Job, Queue

admin.site.register(Job, JobAdmin)
admin.site.register(Queue, QueueAdmin)
