"""A Django project with one app, `shop`, on SQLite; and its own tests, which are those that the page shows."""

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import django

try:
    import django.tasks
except ImportError:  # Django 5.2: the package has the same under another name
    import django_tasks

    sys.modules["django.tasks"] = django_tasks

(shop := Path("shop")).mkdir()
shop.joinpath("__init__.py").touch()
shop.joinpath("models.py").write_text(
    "from django.db import models\n\n\nclass Order(models.Model):\n    total = models.IntegerField()\n"
)
shop.joinpath("urls.py").write_text(
    "from django.urls import path\nfrom shop.views import buy\n\nurlpatterns = [path('buy/', buy)]\n"
)
Path("page_settings.py").write_text(
    """
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db", "TEST": {"NAME": "test.db"}}}
INSTALLED_APPS = ["dibs.contrib.django", "shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "shop.urls"
SECRET_KEY = "for tests alone"
USE_TZ = True
TASKS = {"default": {"BACKEND": "dibs.contrib.django.backend.DibsBackend", "QUEUES": ["default", "mail"]}}
DIBS = {"IMPORTS": ["page"]}
"""
)
os.environ["DJANGO_SETTINGS_MODULE"] = "page_settings"
django.setup()

from django.core.management import call_command  # noqa: E402

call_command("migrate", run_syncdb=True, verbosity=0)
tomorrow = datetime.now(UTC) + timedelta(days=1)


def after():
    """The tests that the page shows pass, and the standard's task is in the queue."""
    from django.test.runner import DiscoverRunner

    from dibs.contrib.django.models import Job as Row

    assert Row.objects.get(task__contains="greet").priority > 0
    runner = DiscoverRunner(verbosity=0, interactive=False)
    suite = runner.test_suite()
    suite.addTests(map(runner.test_loader.loadTestsFromTestCase, (Buying, Sending)))  # noqa: F821
    databases = runner.setup_databases()
    result = runner.run_suite(suite)
    runner.teardown_databases(databases)
    assert result.testsRun == 3
    assert result.wasSuccessful(), result
