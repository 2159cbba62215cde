"""Data goes one way: a module imports what is below it, and knows nothing of what is above."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from house.sources import PACKAGE, name_of, python_files, tree

#: From what all may know to what nobody need know. A package stands for all that is in it.
LAYERS = [
    {"errors"},
    {"states", "limits", "troubles", "tracebacks", "stored", "wording", "written"},
    {"retries", "jobs", "ops", "overlapping", "register", "holders", "metrics", "meanings", "findings"},
    {"params", "settings", "filters", "encoding", "decoding", "codec", "signatures", "secrets", "loop", "why"},
    {"dialects"},
    {"bindings"},
    {"migrations", "privileges"},
    {"store"},
    {
        "tasks",
        "results",
        "running",
        "bulk",
        "events",
        "hooks",
        "places",
        "rollbacks",
        "selections",
        "sessions",
        "logs",
    },
    {"registry", "ambient"},
    {"connections", "looking", "elsewhere", "diagnosis", "orders"},
    {"app"},
    {"worker"},
    {"checks", "scratch", "depths", "exposition", "doctor"},
    {"cli"},
    {"bench", "verify", "demo", "contrib", "testing", "__main__", "__init__"},
]
RANKS = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}

#: A method that makes what is above it imports it when it is called.
LATE = {("app", "worker"), ("orders", "worker"), ("orders", "doctor"), ("__init__", "app"), ("cli", "demo")}

#: No I/O, no clock, no thread: what is decided here can be tried by hand.
PURE = [
    "errors",
    "states",
    "limits",
    "troubles",
    "retries",
    "jobs",
    "ops",
    "register",
    "holders",
    "metrics",
    "why",
    "findings",
    "doctor/drift",
    "doctor/service",
    "params",
    "tracebacks",
    "wording",
    "worker/lanes",
    "worker/verdicts",
]
IMPURE = {
    "time",
    "os",
    "socket",
    "threading",
    "asyncio",
    "logging",
    "subprocess",
    "pathlib",
    "secrets",
    "select",
    "signal",
}

FILES = python_files("src")


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(node: ast.AST, *, late: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield the modules that are imported, and whether it is in a function. Imports for the type checker don't count."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.ImportFrom) and child.module == "dibs":
            yield from ((f"dibs.{alias.name}", late) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield child.module, late
        elif isinstance(child, ast.Import):
            yield from ((alias.name, late) for alias in child.names)
        yield from imported(child, late=late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def test_imports_go_down() -> None:
    """cli → worker → app → store → dialects, bindings → ops → jobs, states → errors."""
    odd = []
    for path in FILES:
        mine = layer_of(path)
        for module, late in imported(tree(path)):
            package, _, rest = module.partition(".")
            theirs = rest.partition(".")[0]
            if package != "dibs" or not theirs or theirs == mine or (late and (mine, theirs) in LATE):
                continue
            if RANKS[theirs] > RANKS[mine]:
                odd.append((name_of(path), module))
    assert odd == []


def test_every_module_has_its_place() -> None:
    """A new module or package is put into the order, and one that is gone is taken out."""
    assert {layer_of(path) for path in FILES} == set(RANKS)


@pytest.mark.parametrize("name", PURE)
def test_pure_code_is_pure(name: str) -> None:
    """Decisions import nothing that could ask for the time, wait, or talk to anybody."""
    path = PACKAGE / f"{name}.py"
    assert {module.partition(".")[0] for module, _ in imported(tree(path))} & IMPURE == set()
    asked = {ast.unparse(node) for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute)}
    assert asked & {"datetime.now", "datetime.utcnow", "datetime.today", "date.today"} == set()


def test_dialects_and_bindings_do_not_know_each_other() -> None:
    """Statements and connections meet in the store. (Both know what a URL is.)"""
    for path in FILES:
        others = {"dialects": "dibs.bindings", "bindings": "dibs.dialects"}.get(layer_of(path))
        if others:
            known = {module for module, _ in imported(tree(path)) if module.startswith(others)}
            assert known <= {"dibs.dialects.urls"}, path
