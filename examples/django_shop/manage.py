"""A Django shop: a view writes an order and enqueues its jobs in one transaction, with `django.tasks` and with dibs.

pip install django django-tasks "dibs[postgres]"      # or dibs[mysql]; Django 6 needs no django-tasks
export DATABASE_URL=postgresql://me@localhost/shop    # or mysql://me@localhost/shop
python manage.py migrate
python manage.py runserver              # in one terminal
python manage.py dibs worker            # in another

curl localhost:8000/orders/ --json '{"item": "teapot", "total": "19.90"}'    # {"order": 1, "receipt": "1"}
curl localhost:8000/orders/1/                                                # with its receipt and its label
curl localhost:8000/orders/ --json '{"item": "palace", "total": "99999"}'    # 422: no order, and no jobs
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
