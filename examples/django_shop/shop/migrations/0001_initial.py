"""The table of orders."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("item", models.CharField(max_length=200)),
                ("total", models.DecimalField(decimal_places=2, max_digits=10)),
                ("receipt", models.TextField(default="")),
                ("label", models.CharField(default="", max_length=64)),
            ],
        ),
    ]
