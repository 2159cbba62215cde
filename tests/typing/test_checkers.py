"""The face is typed: two type checkers find each wrong call of `calls.py`, and nothing to say about the right ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CALLS = Path(__file__).with_name("calls.py")
ROOT = Path(__file__).parents[2]
LINES = dict(enumerate(CALLS.read_text(encoding="utf-8").splitlines(), start=1))
WRONG = {number for number, line in LINES.items() if line.endswith("  # wrong")}


def test_mypy_strict_finds_the_wrong_calls_and_no_others() -> None:
    """As this project's own configuration has it, which is strict."""
    found = run("mypy", "--strict", "--output", "json", str(CALLS))
    problems = [json.loads(line) for line in found.splitlines() if line.startswith("{")]
    compare({problem["line"]: problem["message"] for problem in problems if problem["severity"] == "error"})


def test_pyright_strict_finds_the_wrong_calls_and_no_others(tmp_path: Path) -> None:
    """basedpyright is pyright with a node of its own: nothing is fetched when it is first called. "strict" is pyright's."""
    (settings := tmp_path / "pyrightconfig.json").write_text(
        json.dumps(
            {
                "include": [str(CALLS)],
                "extraPaths": [str(ROOT / "src")],
                "typeCheckingMode": "strict",
                "pythonVersion": "3.11",
            }
        )
    )
    report = json.loads(run("basedpyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(settings)))
    assert report["summary"]["filesAnalyzed"] == 1, report
    compare({found["range"]["start"]["line"] + 1: found["message"] for found in report["generalDiagnostics"]})


def run(module: str, *arguments: str) -> str:
    """Return what a type checker prints; it exits with 1 since there is what is wrong."""
    ran = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return ran.stdout


def compare(found: dict[int, str]) -> None:
    """Fail with the lines on which the checker and the marks differ."""
    missed = [f"{number}: {LINES[number]}" for number in sorted(WRONG - found.keys())]
    surprises = [f"{number}: {LINES[number]}: {found[number]}" for number in sorted(found.keys() - WRONG)]
    assert (missed, surprises) == ([], [])
