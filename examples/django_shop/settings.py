"""Settings of the shop."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

url = urlsplit(os.environ["DATABASE_URL"])
if url.scheme == "mysql":
    import pymysql

    pymysql.install_as_MySQLdb()  # not needed where mysqlclient is installed

DATABASES = {
    "default": {
        "ENGINE": f"django.db.backends.{url.scheme}",
        "NAME": url.path[1:],
        "HOST": url.hostname,
        "PORT": url.port or "",
        "USER": url.username,
        "PASSWORD": url.password or "",
    }
}

INSTALLED_APPS = ["dibs.contrib.django", "shop"]
TASKS = {"default": {"BACKEND": "dibs.contrib.django.backend.DibsBackend", "QUEUES": ["default", "mail"]}}

SECRET_KEY = os.environ.get("SECRET_KEY", "only for trying this out")
DEBUG = True
TIME_ZONE = "UTC"
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
