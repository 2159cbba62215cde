"""Tests wait for what they want to see, and fail when it does not come: none sleeps and hopes."""

from __future__ import annotations

import ast

from house.sources import name_of, python_files, tree


def hopes(node: ast.AST, function: str = "", *, looking: bool = False) -> list[ast.Call]:
    """Return the sleeps in a test's own body that are not between two looks.

    What a task sleeps is its work. A moment that dice or a list choose is not a hope but the question.
    """
    found = []
    for child in ast.iter_child_nodes(node):
        inner, loop = function, looking or isinstance(child, ast.While)
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner, loop = child.name, False
        if isinstance(child, ast.Call) and ast.unparse(child.func) in ("time.sleep", "asyncio.sleep", "sleep"):
            set_time = not any(isinstance(part, ast.Name) for part in ast.walk(child.args[0]))
            if inner.startswith("test_") and not loop and set_time:
                found.append(child)
        found += hopes(child, inner, looking=loop)
    return found


def test_no_test_sleeps_and_hopes() -> None:
    """A sleep for a set time is too long on a fast machine and too short on a slow one."""
    found = {
        name_of(path): [ast.unparse(call) for call in calls]
        for path in python_files("tests")
        if (calls := hopes(tree(path)))
    }
    assert found == {}


def test_the_rule_sees_a_hope() -> None:
    """And lets pass what is none."""
    assert len(hopes(ast.parse("def test_a():\n time.sleep(1)\n with b:\n  await asyncio.sleep(2)"))) == 2
    assert hopes(ast.parse("def test_a():\n def task(): time.sleep(1)\n while not b: time.sleep(1)")) == []
