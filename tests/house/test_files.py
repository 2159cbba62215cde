"""How files are: short, with a sentence on what they are for, and SQL only where it belongs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from house.sources import PACKAGE, name_of, python_files, tree

MOST_LINES = 450

SQL = re.compile(
    r"\b(SELECT|INSERT INTO|UPDATE \w|DELETE FROM|CREATE TABLE|ALTER TABLE|DROP TABLE|SET SESSION|LISTEN|BEGIN)\b"
)

#: Statements put together while the program runs, each with its reason: what is put in can be no parameter.
PUT_TOGETHER = {
    ("dialects/postgres.py", "make_room"): "the name of a schema, quoted",
    ("dialects/postgres.py", "listen"): "the name of a channel, quoted",
    ("dialects/bench/measuring.py", "drop"): "the name of a table that the bench made, quoted",
    ("bindings/own_psycopg.py", "__init__"): "names and values of settings that are constants here",
    ("bindings/own_pymysql.py", "__init__"): "names of settings that are constants here",
    ("bindings/own_psycopg.py", "_told"): "what a person may paste; it is never run",
    ("doctor/drift.py", "drift"): "what a person may paste; it is never run",
    ("dialects/doctor/postgres.py", "dead"): "what a person may paste; it is never run",
    ("dialects/innodb.py", "may"): "a question about a table of dibs, whose name is quoted",
    ("bindings/own_sqlite3.py", "_set_up"): "a PRAGMA takes no parameters; the value is one of three words",
}


EVERYWHERE = python_files("src", "tests", "scripts", "benchmarks", "examples")


def test_no_file_is_much_over_400_lines() -> None:
    """One idea, one file."""
    long = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in EVERYWHERE}
    assert {name: lines for name, lines in long.items() if lines > MOST_LINES} == {}


def test_every_file_says_what_it_is_for() -> None:
    """Its docstring is the first thing in it."""
    silent = [name_of(path) for path in EVERYWHERE if tree(path).body and not ast.get_docstring(tree(path))]
    assert silent == []


def test_every_test_says_what_it_promises() -> None:
    """A test's docstring is the promise it keeps."""
    silent = [
        f"{name_of(path)}: {function.name}"
        for path in python_files("tests")
        for function in functions(path)
        if function.name.startswith("test_") and not ast.get_docstring(function)
    ]
    assert silent == []


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def put_together(function: ast.AST) -> Iterator[str]:
    """Yield the texts that a function puts together, but for those that it raises."""
    for node in ast.iter_child_nodes(function):
        if isinstance(node, ast.Raise):
            continue
        added = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod)
        if added or isinstance(node, ast.JoinedStr):
            texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
            yield " ".join(text for text in texts if isinstance(text, str))
        yield from put_together(node)


def test_sql_is_not_put_together_while_the_program_runs() -> None:
    """A statement is a constant: its text never changes, so it stays prepared, and nobody's value gets into it."""
    odd = [
        (where, function.name)
        for path in python_files("src")
        for where in [path.relative_to(PACKAGE).as_posix()]
        for function in functions(path)
        if any(SQL.search(text) for text in put_together(function))
    ]
    assert set(odd) <= PUT_TOGETHER.keys()


def test_no_exception_is_out_of_date() -> None:
    """Each function on the list is there."""
    for where, name in PUT_TOGETHER:
        assert name in {function.name for function in functions(PACKAGE / where)}, (where, name)


#: Where SQL is at home. The store asks whether a connection still answers; the migrations read what they wrote.
AT_HOME = {"dialects", "bindings", "migrations"}
ONE_QUESTION = {"store.py": {"SELECT 1"}}


def test_sql_stays_at_home() -> None:
    """Outside of dialects, bindings and migrations nobody writes a statement."""
    for path in python_files("src"):
        where = path.relative_to(PACKAGE)
        if where.parts[0] in AT_HOME:
            continue
        documented = {id(node.value) for node in ast.walk(tree(path)) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree(path)):
            said = node.value if isinstance(node, ast.Constant) and id(node) not in documented else None
            if isinstance(said, str) and re.match(r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH)\s", said):
                assert said in ONE_QUESTION.get(where.as_posix(), set()), where
