"""The README says what is true of the code as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from dibs import states

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_first_program_works_when_pasted(tmp_path: Path) -> None:
    """It has at most 15 lines, and run as it stands it prints what its task returned."""
    program = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
    assert len(program.splitlines()) <= 15
    (tmp_path / "hello.py").write_text(program)
    for _ in range(2):  # the second time its database is there already
        ran = subprocess.run(
            [sys.executable, "hello.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert (ran.returncode, ran.stdout.strip()) == (0, "hello world"), ran.stderr


def test_the_state_diagram_is_the_table() -> None:
    """The diagram is drawn from the table in the code."""
    assert states.diagram() in README


def test_the_two_commands_are_on_the_first_screen() -> None:
    """Whoever opens the README sees them without scrolling."""
    first_screen = "\n".join(README.splitlines()[:24])
    assert "scripts/demo" in first_screen
    assert "scripts/test" in first_screen


def test_links_lead_somewhere() -> None:
    """Every relative link of the README is a file of the project."""
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
