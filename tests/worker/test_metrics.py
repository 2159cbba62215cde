"""Metrics over HTTP, of real processes, read as Prometheus reads them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from commands import environment, process
from conftest import wait_for
from worker.test_cli_worker import Place, place_on
from worker.test_health import port_of, runtime

__all__ = ["runtime"]

Scrape = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def place(tmp_path: Path, runtime: Path) -> Iterator[Place]:
    with place_on(tmp_path, f"sqlite:///{tmp_path / 'dibs.db'}") as place:
        place.app.counts()
        yield place


def scrape(port: int) -> Scrape:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        text = answer.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def add(place: Place, number: int) -> None:
    """Enqueue so many jobs of `add`."""

    @place.app.task(name="add")
    def add(a: int) -> None: ...

    place.app.enqueue_many(add.call(1) for _ in range(number))


def value(found: Scrape, name: str, **labels: str) -> float:
    return found.get((name, frozenset(labels.items())), 0)


def test_worker(place: Place) -> None:
    """At the health port: what this worker has claimed, run and timed, and what the database knows."""
    add(place, 3)
    place.app.task(name="boom", max_attempts=1)(lambda: None).enqueue()
    worker = place.start("--health-port", "0")
    port = port_of(worker)

    def ran() -> Scrape | None:
        found = scrape(port)
        return found if value(found, "dibs_runs_total", queue="default", task="boom", outcome="failed") else None

    found = wait_for(ran, what="the runs to be counted")
    assert found is not None
    assert value(found, "dibs_runs_total", queue="default", task="add", outcome="done") == 3
    assert value(found, "dibs_claimed_total", queue="default") == 4
    assert value(found, "dibs_wait_seconds_count", queue="default") == 4
    assert value(found, "dibs_run_seconds_count", task="add") == 3
    assert value(found, "dibs_run_seconds_bucket", task="add", le="+Inf") == 3
    assert 0 < value(found, "dibs_run_seconds_sum", task="add") < 5
    assert (value(found, "dibs_slots", kind="thread"), value(found, "dibs_up")) == (10, 1)
    assert not [name for name, _ in found if "password" in name]


def test_several_processes(place: Place) -> None:
    """The supervisor's port has what all its processes have counted, each under its place."""
    add(place, 40)
    supervisor = place.start("--processes", "2", "--health-port", "0")
    port = port_of(supervisor)
    done: Counter[str] = Counter()

    def all_done() -> bool:
        found = scrape(port)
        for place_number in ("0", "1"):
            done[place_number] = int(
                value(found, "dibs_runs_total", queue="default", task="add", outcome="done", process=place_number)
            )
        return done.total() == 40

    wait_for(all_done, what="all runs to be counted")
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0


def test_command(place: Place) -> None:
    """`dibs metrics` prints what the database knows, as text or JSON, and with --serve answers scrapes until stopped."""
    add(place, 1)
    url = place.database.url
    printed = process(["metrics"], place.folder, url=url)
    assert 'dibs_jobs{queue="default",status="ready"} 1.0' in printed.out
    families = {
        family["name"]: family for family in json.loads(process(["metrics", "--json"], place.folder, url=url).out)
    }
    assert families["dibs_jobs"]["samples"][0] == {"labels": {"queue": "default", "status": "ready"}, "value": 1}
    log = place.folder / "serve.log"
    with log.open("wb") as file:
        serving = subprocess.Popen(
            [sys.executable, "-m", "dibs", "metrics", "--serve", "0"],
            cwd=place.folder,
            stderr=file,
            env=environment(url),
        )
    try:
        words = "probes are answered at port "
        port = int(wait_for(lambda: log.read_text().partition(words)[2].partition(":")[0], what="the port"))
        assert value(scrape(port), "dibs_jobs", queue="default", status="ready") == 1
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(10) == 0
    finally:
        serving.kill()
        serving.wait()
