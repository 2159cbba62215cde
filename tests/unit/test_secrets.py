"""Secret arguments are masked in every output and taken out of error texts."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NewType, TypedDict

import msgspec
import pydantic
import pytest

from databases import Database
from dibs import Dibs, InvalidArgument, JobFailed, Secret, current_job
from dibs.cli.run import run as run_command
from dibs.secrets import MASK, holds_secret, masked, scrubbed, stamped, unstamped, without

PASSWORD = "hunter2-å'\"\\"


@dataclass
class Login:
    user: str
    password: Secret[str]
    again: Login | None = None


@dataclass
class Plain:
    user: str
    again: Plain | None = None


class Row(TypedDict):
    password: Secret[str]


class Struct(msgspec.Struct):
    password: Secret[str] | None = None


class Model(pydantic.BaseModel):
    logins: list[Login] = []


Token = NewType("Token", str)


@pytest.mark.parametrize(
    "annotation",
    [
        Secret[str],
        Secret[str] | None,
        Annotated[Secret[int], "more"],
        list[Secret[str]],
        dict[str, tuple[Secret[str], ...]],
        Login,
        list[Login | None],
        Row,
        Struct,
        Model,
        Secret[Token],
        Secret[Login],
    ],
)
def test_a_mark_is_found_wherever_it_stands(annotation: Any) -> None:
    """In a union, in a container, in the field of a record."""
    assert holds_secret(annotation)


@pytest.mark.parametrize("annotation", [str, int | None, list[str], Plain, Token, Any, Annotated[str, "secret"]])
def test_nothing_else_is_secret(annotation: Any) -> None:
    """An annotation without the mark hides nothing, also one that refers to itself."""
    assert not holds_secret(annotation)


def test_names_travel_in_meta_and_are_not_seen_there() -> None:
    """The names of the secret arguments are stored beside what hooks added, and taken away when it is read."""
    stored = stamped(msgspec.Raw(b'{"tenant":7}'), ["password"])
    assert stored is not None
    assert unstamped(msgspec.json.decode(stored)) == ({"tenant": 7}, ["password"])
    only = stamped(None, ["password"])
    assert only is not None
    assert unstamped(msgspec.json.decode(only)) == (None, ["password"])
    assert stamped(None, []) is None


def test_masking_leaves_the_rest() -> None:
    """Only the secret arguments are masked; one that is null is shown as that."""
    assert masked({"a": 1, "b": [2], "c": None}, ["b", "c", "d"]) == {"a": 1, "b": MASK, "c": None}
    assert masked([1], ["b"]) == [1]


@pytest.mark.parametrize(
    ("value", "text", "left"),
    [
        (PASSWORD, f"bad {PASSWORD}", "bad •••"),
        (PASSWORD, f"bad {PASSWORD!r}", "bad '•••'"),
        (PASSWORD, f"bad {json.dumps(PASSWORD)}", 'bad "•••"'),
        (PASSWORD, f"bad {json.dumps(PASSWORD, ensure_ascii=False)}", 'bad "•••"'),
        ("a b/c?d=e", "https://x/?p=a%20b%2Fc%3Fd%3De&q=a+b%2Fc%3Fd%3De", "https://x/?p=•••&q=•••"),
        (123, "pin 123 of 1234 in n123", "pin ••• of 1234 in n123"),
        ("abc", "abc in abcd", "••• in abcd"),
        ("ab", "ab", "ab"),
        ({"a": ["secret one", {"b": "secret two"}]}, "secret one, secret two", "•••, •••"),
        (["hunter2", "hunter2-long"], "hunter2-long hunter2", "••• •••"),
        ("-----BEGIN-----\nMIIEabcdef\n", "can't parse MIIEabcdef", "can't parse •••"),
        (True, "True", "True"),
    ],
)
def test_values_are_taken_out_of_texts(value: Any, text: str, left: str) -> None:
    """In the forms in which a value stands in a message: as it is, as Python, JSON and URLs write it."""
    payload = json.dumps({"password": value, "user": "zoe"})
    assert without(text + " zoe", payload, lambda name: name == "password") == left + " zoe"


def test_a_payload_that_is_none_hides_nothing() -> None:
    """A text is left as it is where the payload can't be read."""
    assert without("text", "[1", lambda _: True) == without("text", "[1]", lambda _: True) == "text"


def test_a_scrub_that_fails_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """When the user's scrub raises or returns no text, the text is left out, and what it said is not logged."""

    def broken(text: str) -> str:
        raise ValueError(text)

    assert scrubbed("card 1234", lambda text: text.replace("1234", "…")) == "card …"
    assert "1234" not in scrubbed("card 1234", broken)
    assert "1234" not in scrubbed("card 1234", lambda text: sys.exit(text))
    assert "1234" not in scrubbed("card 1234", lambda text: None)  # type: ignore[arg-type,return-value]
    assert "ValueError" in caplog.text
    assert "1234" not in caplog.text


def test_a_refused_secret_is_not_quoted(tmp_path: Path) -> None:
    """An argument that does not fit is named in the error, with the reason unless it is secret."""
    app = Dibs(f"sqlite:///{tmp_path}/dibs.db")

    @app.task(name="login")
    def login(user: int, password: Secret[int], **others: Secret[int]) -> None: ...

    for wrong, path in (({"password": PASSWORD}, "password"), ({"password": 1, "other": PASSWORD}, "other")):
        with pytest.raises(InvalidArgument) as caught:
            login.enqueue(1, **wrong)
        assert caught.value.path == path
        assert caught.value.__cause__ is None
        assert "secret" in caught.value.problem
        assert "hunter2" not in str(caught.value)
    with pytest.raises(InvalidArgument) as caught:
        login.enqueue(1, password=float("nan"))  # type: ignore[arg-type]
    assert "secret" in caught.value.problem


def secretive(db: Database, **settings: Any) -> tuple[Dibs, Any]:
    app = db.app(**settings)

    @app.task(name="login", max_attempts=1)
    def login(user: str, password: Secret[str], **others: Secret[str]) -> str:
        if user == "zoe":
            raise ValueError(f"{user} can't log in with {password!r}, {others}")
        return user

    return app, login


def test_what_a_job_shows(
    db: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`dibs show`, `dibs jobs`, records, errors and the log mask a secret, with and without the task's code; the
    task gets it as it was."""
    caplog.set_level(logging.DEBUG)
    app, login = secretive(db)
    monkeypatch.setenv("DIBS_DATABASE_URL", db.url)
    job = login.enqueue("zoe", password=PASSWORD, token="tok-123456")
    fine = login.enqueue("ann", PASSWORD)
    (stored,) = db.fetch("SELECT payload FROM dibs_jobs WHERE id = :id", id=job.id)[0]
    assert json.loads(stored) == {"user": "zoe", "password": PASSWORD, "token": "tok-123456"}
    app.worker(burst=True).run()
    assert fine.join(1) == "ann"

    record = db.app().job(job.id)
    assert record.payload == {"user": "zoe", "password": MASK, "token": MASK}
    assert record.meta is None
    assert record.error is not None
    assert f"zoe can't log in with {MASK}" in record.error.replace("'•••'", MASK).replace('"•••"', MASK)
    with pytest.raises(JobFailed) as caught:
        job.join(1)
    for arguments in (["show", str(job.id)], ["show", "--json", str(job.id)], ["jobs"], ["jobs", "--json"]):
        assert run_command(arguments) == 0
    outputs = capsys.readouterr()
    assert MASK in outputs.out
    for text in (repr(record), outputs.out + outputs.err, str(caught.value), caplog.text):
        assert "hunter2" not in text
        assert "tok-123456" not in text


def test_values_that_got_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """In a key, a result, a note, a checkpoint or a reason: the values of secret arguments are masked in all that shows
    the job, and a secret result as a whole; in every process. Whoever asks for the result itself gets it."""
    app = Dibs(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.task(name="token")
    def token(password: Secret[str]) -> Secret[dict[str, int]]:
        current_job().progress(0.5, note=f"with {password}")
        current_job().checkpoint([password])
        return {"made from it": 7412}

    @app.task(name="echo")
    def echo(password: Secret[str], pin: Secret[int]) -> list[Any]:
        return [{password: pin}, f"{pin}", 12]

    jobs = [token.using(key=f"for-{PASSWORD}").enqueue(PASSWORD), echo.enqueue(PASSWORD, 7412)]
    caplog.set_level(logging.INFO)
    token.using(key=f"for-{PASSWORD}").enqueue(PASSWORD)
    app.worker(burst=True).run()
    assert [job.join(timeout=5) for job in jobs] == [{"made from it": 7412}, [{PASSWORD: 7412}, "7412", 12]]
    waiting = echo.enqueue(PASSWORD, 7412)
    app.cancel(waiting.id, reason=f"{PASSWORD} is out")
    elsewhere = Dibs(f"sqlite:///{tmp_path / 'jobs.db'}")
    for shown in (app, elsewhere):
        assert shown.job(jobs[0].id).result == MASK
        assert shown.job(jobs[0].id).task_key == f"for-{MASK}"
        assert shown.job(jobs[1].id).result == [{MASK: MASK}, MASK, 12]
        assert shown.job(waiting.id).error == f"{MASK} is out"
        assert not any(secret in repr(shown.jobs()) for secret in (PASSWORD, "7412"))
    capsys.readouterr()
    run_command(["--url", f"sqlite:///{tmp_path / 'jobs.db'}", "show", str(jobs[0].id)])
    run_command(["--url", f"sqlite:///{tmp_path / 'jobs.db'}", "jobs", "--json"])
    printed = capsys.readouterr().out
    assert MASK in printed
    assert not any(secret in printed + caplog.text for secret in (PASSWORD, "7412"))


def test_a_job_from_before_the_annotation(db: Database) -> None:
    """A job that was enqueued before its argument was made a secret is masked by the code as it is now."""
    before = db.app()

    @before.task(name="login")
    def login(user: str, password: str) -> None: ...

    job = login.enqueue("zoe", PASSWORD)
    app, _ = secretive(db)
    assert app.job(job.id).payload == app.jobs()[0].payload == {"user": "zoe", "password": MASK}
    app.worker(burst=True).run()
    assert "hunter2" not in repr(app.job(job.id))


def test_scrub_sees_each_error_before_it_is_stored_or_logged(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    """Also those of signals' reasons and of arguments that do not fit; after the secrets were masked, before it is
    cut to its length."""
    from dibs import Cancel

    seen: list[str] = []

    def scrub(text: str) -> str:
        seen.append(text)
        return text.replace("4929", "(card)")

    app = db.app(scrub=scrub)

    @app.task(name="pay", max_attempts=1)
    def pay(how: str, secret: Secret[str]) -> None:
        if how == "cancel":
            raise Cancel("card 4929")
        raise ValueError("x" * 8_190 + "4929" * 5 + secret + "y" * 8_190)

    jobs = [pay.enqueue(how, "hunter2") for how in ("cancel", "raise")]
    app.worker(burst=True).run()
    errors = [app.job(job.id).error or "" for job in jobs]
    assert errors[0] == "card (card)"
    assert len(errors[1]) <= 16_384
    assert not any("4929" in text or "hunter2" in text for text in [*errors, caplog.text])
    assert all("hunter2" not in text for text in seen)
