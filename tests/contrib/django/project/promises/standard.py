"""What Django's own framework for tasks expects of a backend."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.test import TestCase, TransactionTestCase
from django.test.utils import override_settings
from django.utils import timezone
from shop import tasks
from shop.elsewhere import lost

from dibs.checks import check
from dibs.contrib.django import app
from dibs.contrib.django.backend import DibsBackend
from dibs.contrib.django.models import Job
from dibs.contrib.django.standard import InvalidTask, Status, TaskResultDoesNotExist, signals, task_backends
from dibs.contrib.django.testing import forget_jobs
from dibs.states import State
from promises.working import run_what_is_due


class Heard:
    """What the signals of the framework said, in order."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, Any]] = []

    def __enter__(self) -> Heard:
        for name in ("enqueued", "started", "finished"):
            getattr(signals, f"task_{name}").connect(self._hear(name), dispatch_uid=f"heard {name}", weak=False)
        return self

    def __exit__(self, *error: object) -> None:
        for name in ("enqueued", "started", "finished"):
            getattr(signals, f"task_{name}").disconnect(dispatch_uid=f"heard {name}")

    def _hear(self, name: str) -> Any:
        def hear(sender: Any, task_result: Any, **kwargs: Any) -> None:
            assert sender is DibsBackend
            self.said.append((name, str(task_result.status), task_result))

        return hear


class Enqueueing(TestCase):
    """enqueue(), using() and what is refused."""

    def test_the_result_of_an_enqueue(self) -> None:
        """It is READY, has its arguments as JSON has them, and can be looked up."""
        result = tasks.add.enqueue(1, b=(2,))
        self.assertEqual((result.status, result.args, result.kwargs), (Status.READY, [1], {"b": [2]}))
        self.assertEqual((result.backend, result.errors, result.worker_ids, result.attempts), ("default", [], [], 0))
        self.assertFalse(result.is_finished)
        self.assertIsNotNone(result.enqueued_at)
        self.assertIsNone(result.started_at)
        with self.assertRaisesMessage(ValueError, "Task has not finished yet"):
            _ = result.return_value
        again = tasks.add.get_result(result.id)
        self.assertEqual((again.id, again.args, again.kwargs, again.task), (result.id, [1], {"b": [2]}, tasks.add))
        self.assertEqual(again.status, Status.READY)
        result.refresh()
        self.assertEqual(result.status, Status.READY)

    async def test_async(self) -> None:
        """aenqueue() and aget_result() do the same."""
        result = await tasks.double.aenqueue(4)
        again = await tasks.double.aget_result(result.id)
        self.assertEqual((again.id, again.args), (result.id, [4]))
        await result.arefresh()
        self.assertEqual(result.status, Status.READY)

    def test_using(self) -> None:
        """Priority, queue and time become the row's."""
        at = timezone.now() + timedelta(hours=1)
        result = tasks.add.using(priority=-100, queue_name="mail", run_after=at).enqueue(1)
        row = Job.objects.get(pk=result.id)
        self.assertEqual((row.priority, row.queue), (-100, "mail"))
        self.assertLess(abs(row.run_at - at), timedelta(seconds=1))
        again = tasks.add.get_result(result.id)
        self.assertEqual((again.task.priority, again.task.queue_name), (-100, "mail"))

    def test_options_of_the_backend(self) -> None:
        """OPTIONS become the job's, and unknown ones are refused."""
        row = Job.objects.get(pk=tasks.charge.enqueue("x").id)
        self.assertEqual(row.max_attempts, 1)
        with self.assertRaises(ImproperlyConfigured):
            DibsBackend("default", {"OPTIONS": {"max_atempts": 1}})

    def test_what_is_refused(self) -> None:
        """Queues, priorities and times out of range, functions that no worker would find, arguments that are not JSON."""
        for wrong in ({"priority": 101}, {"priority": -101}, {"priority": 0.5}, {"queue_name": "unknown"}):
            with self.assertRaises(InvalidTask):
                tasks.add.using(**wrong)
        if timezone.settings.USE_TZ:
            with self.assertRaises(InvalidTask):
                tasks.add.using(run_after=datetime(2040, 1, 1))
        with self.assertRaises(InvalidTask):
            lost.enqueue()
        for unfit in (object(), {1, 2}, datetime.now()):
            with self.assertRaises(TypeError):
                tasks.add.enqueue(unfit)
        self.assertEqual(Job.objects.count(), 0)

    def test_results_that_are_not(self) -> None:
        """An id that never was, one that is none, and a job of dibs' own are no results."""
        own = tasks.send_receipt.enqueue(1)
        for result_id in ("123456789", "x", "", "9" * 40, str(own.id)):
            with self.assertRaises(TaskResultDoesNotExist):
                task_backends["default"].get_result(result_id)

    def test_another_tasks_result(self) -> None:
        """get_result() of a task refuses that of another."""
        result = tasks.add.enqueue(1)
        with self.assertRaisesMessage(Exception, "Task does not match"):
            tasks.double.get_result(result.id)

    def test_what_it_can(self) -> None:
        """All that the framework knows to ask for."""
        backend = task_backends["default"]
        for ability in ("supports_defer", "supports_async_task", "supports_get_result", "supports_priority"):
            self.assertTrue(getattr(backend, ability), ability)

    def test_checks(self) -> None:
        """manage.py check has nothing to say; without the app it has."""
        self.assertEqual([each for each in checks.run_checks() if (each.id or "").startswith("dibs")], [])
        with override_settings(INSTALLED_APPS=["django.contrib.contenttypes"]):
            self.assertEqual([each.id for each in task_backends["default"].check()], ["dibs.E004"])

    def test_a_cancelled_job(self) -> None:
        """It has failed, as far as the framework knows."""
        result = tasks.add.enqueue(1)
        app.cancel(int(result.id), reason="not wanted")
        result.refresh()
        self.assertEqual(result.status, Status.FAILED)
        self.assertEqual(result.errors[0].exception_class_path, "dibs.errors.JobCancelled")


class Running(TransactionTestCase):
    """What becomes of a job of the framework's in a worker."""

    def setUp(self) -> None:
        forget_jobs()

    def test_success(self) -> None:
        """A function's result comes back, sync or async, and the signals say so."""
        with Heard() as heard:
            added, doubled = tasks.add.enqueue(1, b=2), tasks.double.enqueue(4)
            run_what_is_due()
        for result in (added, doubled):
            result.refresh()
            self.assertEqual((result.status, result.is_finished, result.attempts), (Status.SUCCESSFUL, True, 1))
            assert result.enqueued_at and result.started_at and result.finished_at
            self.assertLessEqual(result.started_at, result.finished_at)
            self.assertEqual(result.last_attempted_at, result.started_at)
        self.assertEqual((added.return_value, doubled.return_value), (3, 8))
        said = [(name, status) for name, status, result in heard.said if result.id == added.id]
        self.assertEqual(said, [("enqueued", "READY"), ("started", "RUNNING"), ("finished", "SUCCESSFUL")])
        said = [(name, status) for name, status, result in heard.said if result.id == doubled.id]
        self.assertEqual(said, [("enqueued", "READY"), ("started", "RUNNING"), ("finished", "SUCCESSFUL")])

    def test_arguments_that_do_not_fit(self) -> None:
        """Those of another version's: no attempt is used up, the function is not called, and the check finds them."""
        result = tasks.add.enqueue(1, b=2, c=3)
        with Heard() as heard:
            run_what_is_due()
        result.refresh()
        self.assertEqual((result.status, result.attempts, result.errors, heard.said), (Status.READY, 0, [], []))
        (misfit,) = check(app).misfits
        self.assertEqual((misfit.ids, misfit.reason), ([int(result.id)], "got an unexpected keyword argument 'c'"))

    def test_context(self) -> None:
        """A task that takes the context learns which attempt of what it is."""
        result = tasks.who.enqueue("a", "b")
        run_what_is_due()
        result.refresh()
        self.assertEqual(
            result.return_value,
            {"id": result.id, "attempt": 1, "args": ["a", "b"], "status": "RUNNING", "names": ["a", "b"]},
        )

    def test_failure(self) -> None:
        """An exception is named by the path of its class, with its traceback."""
        with Heard() as heard:
            result = tasks.charge.enqueue("visa")
            run_what_is_due()
        result.refresh()
        self.assertEqual(result.status, Status.FAILED)
        with self.assertRaisesMessage(ValueError, "Task failed"):
            _ = result.return_value
        (error,) = result.errors
        self.assertEqual(error.exception_class_path, "shop.tasks.Declined")
        self.assertIs(error.exception_class, tasks.Declined)
        self.assertIn("Declined: no visa\nask the bank", error.traceback)
        self.assertNotIn("dibs/contrib", error.traceback)
        self.assertEqual([name for name, _, _ in heard.said], ["enqueued", "started", "finished"])
        self.assertEqual(heard.said[-1][2].errors[0].exception_class_path, "shop.tasks.Declined")

    def test_a_retry(self) -> None:
        """A job that will be tried again is READY, with the error of its first attempt; it has not finished."""
        with Heard() as heard:
            result = tasks.shaky.enqueue()
            run_what_is_due()
        result.refresh()
        self.assertEqual((result.status, result.attempts, len(result.errors)), (Status.READY, 1, 1))
        self.assertIsNone(result.finished_at)
        self.assertIsNotNone(result.last_attempted_at)
        self.assertEqual([name for name, _, _ in heard.said], ["enqueued", "started"])

    def test_what_cannot_be_returned(self) -> None:
        """A result that is not JSON fails the job, once, as a TypeError."""
        result = tasks.unstorable.enqueue()
        run_what_is_due()
        result.refresh()
        self.assertEqual((result.status, result.attempts), (Status.FAILED, 1))
        self.assertEqual(result.errors[0].exception_class_path, "builtins.TypeError")

    def test_atomic(self) -> None:
        """Inside atomic() a job is there with the commit, and gone with the rollback."""
        with transaction.atomic():
            kept = tasks.add.enqueue(1)
        with self.assertRaises(KeyError), transaction.atomic():
            tasks.add.enqueue(2)
            raise KeyError
        self.assertEqual([job.id for job in app.jobs()], [int(kept.id)])
        run_what_is_due()
        self.assertEqual(app.job(int(kept.id)).status, State.DONE)
