"""The pages of the admin."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import TestCase
from django.test.utils import CaptureQueriesContext
from shop.tasks import add, log_in, send_receipt

from dibs.contrib.django import app
from dibs.contrib.django.models import Job, Queue
from dibs.states import State

JOBS = "/admin/dibs/job/"
QUEUES = "/admin/dibs/queue/"


def user(*permissions: str) -> User:
    """Return a person of the staff who has these permissions."""
    person = User.objects.create_user(f"u{User.objects.count()}", password="x", is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename__in=permissions, content_type__app_label="dibs"))
    return person


class Jobs(TestCase):
    """The list of jobs, a job, and the orders."""

    def setUp(self) -> None:
        self.client.force_login(user("view_job", "change_job"))

    def order(self, action: str, *ids: int) -> Any:
        return self.client.post(JOBS, {"action": action, "_selected_action": ids}, follow=True)

    def test_the_list(self) -> None:
        """It shows jobs and reads none of what may be large, and offers no way to add one."""
        job = send_receipt.using(key="order-7").enqueue(7)
        with CaptureQueriesContext(connection) as queries:
            page = self.client.get(JOBS)
        self.assertContains(page, "order-7")
        self.assertContains(page, f"{JOBS}{job.id}/change/")
        self.assertNotContains(page, "/add/")
        self.assertFalse([each for each in queries if "payload" in each["sql"]])

    def test_filters_and_search(self) -> None:
        """By status, queue, task and day; by key and by id."""
        job, other = send_receipt.using(key="order-7").enqueue(7), add.enqueue(1)
        app.cancel(int(other.id))

        def found(query: str) -> list[int]:
            return [each.pk for each in self.client.get(f"{JOBS}?{query}").context["cl"].result_list]

        self.assertEqual(found("status__exact=ready"), [job.id])
        self.assertEqual(found("queue=mail"), [job.id])
        self.assertEqual(found("task=shop.tasks.add"), [int(other.id)])
        self.assertEqual(found("q=order-7"), [job.id])
        self.assertEqual(found(f"q={other.id}"), [int(other.id)])
        self.assertEqual(found("q=nothing"), [])
        self.assertEqual(found("queue=never-was"), [])
        self.assertEqual(len(found("created_at__gte=2020-01-01+00:00:00%2B00:00")), 2)

    def test_a_job(self) -> None:
        """It shows all there is, with arguments and errors, and nothing that could be edited or deleted."""
        job = send_receipt.enqueue(7)
        app.cancel(job.id, reason="<b>not</b> wanted")
        page = self.client.get(f"{JOBS}{job.id}/change/")
        self.assertContains(page, "&quot;order_id&quot;: 7")
        self.assertContains(page, "&lt;b&gt;not&lt;/b&gt; wanted")
        self.assertNotContains(page, 'name="_save"')
        self.assertNotContains(page, "deletelink")
        self.assertEqual(self.client.post(f"{JOBS}{job.id}/change/", {"queue": "x"}).status_code, 403)
        self.assertEqual(self.client.post(f"{JOBS}{job.id}/delete/", {"post": "yes"}).status_code, 403)

    def test_secrets(self) -> None:
        """A secret argument is masked."""
        job = log_in.enqueue("zoe", password="hunter2")
        page = self.client.get(f"{JOBS}{job.id}/change/")
        self.assertContains(page, "zoe")
        self.assertNotContains(page, "hunter2")
        self.assertNotContains(page, "dibs.secret")

    def test_cancel_and_requeue(self) -> None:
        """They work on what they can, say what was left, and are logged."""
        job = send_receipt.using(key="a").enqueue(7)
        self.assertContains(self.order("cancel", job.id), "1 cancelled")
        self.assertEqual(app.job(job.id).status, State.CANCELLED)
        self.assertIn("u0, in the admin", app.job(job.id).error or "")
        self.assertContains(self.order("cancel", job.id), "1 left as they are")
        self.assertContains(self.order("requeue", job.id), "1 requeued")
        self.assertEqual(app.job(job.id).status, State.READY)
        self.assertContains(self.client.get(f"{JOBS}{job.id}/history/"), "requeued")

    def test_a_key_that_was_taken(self) -> None:
        """A job whose key another one has by now stays as it is, and the page says why."""
        first = send_receipt.using(key="a").enqueue(7)
        app.cancel(first.id)
        holder = send_receipt.using(key="a").enqueue(7)
        page = self.order("requeue", first.id)
        self.assertContains(page, f"held by job {holder.id}")
        self.assertEqual(app.job(first.id).status, State.CANCELLED)

    def test_permissions(self) -> None:
        """Who may only view can't order; who may not view sees nothing."""
        job = send_receipt.enqueue(7)
        self.client.force_login(user("view_job"))
        self.assertEqual(self.client.get(JOBS).status_code, 200)
        self.order("cancel", job.id)
        self.assertEqual(Job.objects.get().status, "ready")
        self.client.force_login(user())
        self.assertEqual(self.client.get(JOBS).status_code, 403)


class Queues(TestCase):
    """The page of the queues."""

    def setUp(self) -> None:
        self.client.force_login(user("view_queue", "change_queue"))

    def test_the_page(self) -> None:
        """It shows every queue that has jobs or that a task is for, with links to its jobs."""
        send_receipt.using(queue="rare & odd").enqueue(7)
        page = self.client.get(QUEUES)
        self.assertContains(page, "rare &amp; odd")
        self.assertContains(page, "?queue=rare%20%26%20odd&amp;status__exact=ready")
        self.assertContains(page, 'value="mail"')

    def test_pause_and_resume(self) -> None:
        """They take effect, and the page says who did it."""
        page = self.client.post(QUEUES, {"action": "pause", "queue": ["mail", "new"]}, follow=True)
        self.assertContains(page, "Paused mail")
        self.assertContains(page, "by u0, in the admin")
        self.assertEqual(Queue.objects.filter(paused_at__isnull=False).count(), 2)
        self.assertContains(
            self.client.post(QUEUES, {"action": "pause", "queue": "mail"}, follow=True), "Paused already: mail"
        )
        self.client.post(QUEUES, {"action": "resume", "queue": ["mail", "new"]})
        self.assertEqual(Queue.objects.filter(paused_at__isnull=False).count(), 0)

    def test_permissions(self) -> None:
        """Who may only view can't pause; who may not view sees nothing."""
        self.client.force_login(user("view_queue"))
        self.assertNotContains(self.client.get(QUEUES), "checkbox")
        self.assertEqual(self.client.post(QUEUES, {"action": "pause", "queue": "mail"}).status_code, 403)
        self.client.force_login(user())
        self.assertEqual(self.client.get(QUEUES).status_code, 403)
