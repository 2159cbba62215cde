"""A small shop, on the database that DIBS_DJANGO_URL names."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from typing import Any

from dibs.dialects import parse

ENGINES = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql", "sqlite": "sqlite3"}

url = parse(os.environ["DIBS_DJANGO_URL"])
if ENGINES[url.scheme] == "mysql" and find_spec("MySQLdb") is None:
    import pymysql

    pymysql.install_as_MySQLdb()

DATABASES: dict[str, Any] = {
    "default": {
        "ENGINE": f"django.db.backends.{ENGINES[url.scheme]}",
        "NAME": url.database,
        "HOST": url.host,
        "PORT": url.port or "",
        "USER": url.user,
        "PASSWORD": url.password,
        "CONN_MAX_AGE": int(os.environ.get("DIBS_DJANGO_MAX_AGE", "0")),
        # A test database in a file, which several connections can open, unless the one in memory is wanted.
        "TEST": {}
        if url.scheme != "sqlite" or os.environ.get("DIBS_DJANGO_IN_MEMORY")
        else {"NAME": f"{url.database}.test"},
    },
    "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}
DIBS: dict[str, Any] = json.loads(os.environ.get("DIBS_DJANGO_SETTINGS", "{}"))

SECRET_KEY = "for tests alone"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
USE_TZ = not os.environ.get("DIBS_DJANGO_NAIVE")
TIME_ZONE = "Asia/Tokyo"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "urls"
ALLOWED_HOSTS = ["*"]
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "dibs.contrib.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
TASKS: dict[str, Any] = {
    "default": {"BACKEND": "dibs.contrib.django.backend.DibsBackend", "QUEUES": ["default", "mail"]},
    "once": {
        "BACKEND": "dibs.contrib.django.backend.DibsBackend",
        "QUEUES": [],
        "OPTIONS": {"max_attempts": 1, "retention": 3600},
    },
}
