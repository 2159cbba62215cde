"""Runs a page of the documentation from top to bottom, as its reader would, in this process and this folder.

    python tests/pages/run_page.py docs/hooks.md

- ```python blocks are run one after the other in one namespace; `await` may stand at their top.
- One that begins with a comment that is the name of a file (`# shop/tasks.py`) is written to that file, and is a module
  from there on, which knows the names that the page had before. If the project has the file (`# examples/shop.py`), the
  block is a piece of it, and must stand there just so; the file has tests of its own.
- ```console blocks are sessions: what stands after `$ ` is run by bash, and must print what stands below it. `…`
  stands for anything in a line, and for any lines when it is alone on one.
- `<!-- skip: next "reason" -->` above a block: it is not run.

Not a test: `test_pages` starts it, each page in a process and a folder of its own.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import SkipTest

from sybil import Document, Example
from sybil.parsers.markdown import CodeBlockParser, SkipParser

sys.path.insert(0, str(Path(__file__).parents[1]))

from pages.reading import companion

FILE = re.compile(r"# ([\w/]+\.py)\n")
COMMAND = re.compile(r"^\$ ", re.MULTILINE)

#: The longest (seconds) that one command of a session may take.
LONGEST = 60


class Page:
    """A page that is being run: its names, and its event loop for blocks that await."""

    def __init__(self) -> None:
        self.module = ModuleType("page")
        self.names = self.module.__dict__
        self.runner = asyncio.Runner()
        sys.modules["page"] = self.module

    def python(self, example: Example) -> None:
        """Run a block, or make the file that it is."""
        code = str(example.parsed)
        if named := FILE.match(code):
            if (there := project_of(Path(example.path)) / named[1]).exists():
                assert code[named.end() :].strip() in there.read_text(encoding="utf-8"), f"not so in {there}:\n{code}"
            else:
                self.write(Path(named[1]), code)
            return
        self.run("\n" * example.line + code, example.path)

    def run(self, code: str, path: str) -> None:
        compiled = compile(code, path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if compiled.co_flags & inspect.CO_COROUTINE:
            self.runner.run(eval(compiled, self.names))
        else:
            exec(compiled, self.names)

    def write(self, path: Path, code: str) -> None:
        """Write a file and make it a module; its names are also those of the page from there on."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
        name = ".".join(path.with_suffix("").parts)
        spec = importlib.util.spec_from_file_location(name, path.resolve())
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        module.__dict__.update(self.known())
        sys.modules[name] = module
        spec.loader.exec_module(module)
        self.names |= {name: value for name, value in vars(module).items() if not name.startswith("__")}

    def known(self) -> dict[str, Any]:
        return {name: value for name, value in self.names.items() if not name.startswith("__")}

    def console(self, example: Example) -> None:
        """Run a session, and compare what it prints."""
        for part in COMMAND.split(str(example.parsed))[1:]:
            lines = part.splitlines()
            given = [lines[0]]
            while given[-1].endswith("\\"):
                given.append(lines[len(given)])
            printed = shell("\n".join(given))
            wanted = "\n".join(lines[len(given) :]).strip()
            if not re.fullmatch(pattern(wanted), printed.strip()):
                raise AssertionError(f"{example.path}:{example.line}: $ {lines[0]}\n{printed}\nand not\n{wanted}")


def project_of(page: Path) -> Path:
    """Return the folder of the project that a page is about; for a page without one its own."""
    return next((folder for folder in page.parents if (folder / "pyproject.toml").exists()), page.parent)


def shell(command: str) -> str:
    """Run a command in this folder; return what it prints, and fail if it waits for ever. It may exit as it likes."""
    return subprocess.run(
        ["bash", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST,
        check=False,
    ).stdout


def pattern(wanted: str) -> str:
    """Return the regular expression for an output with `…` in it."""
    lines = [
        r"(?:.*\n?)*?" if line.strip() == "…" else re.escape(line).replace("…", ".*") + r"\n?"
        for line in wanted.splitlines()
    ]
    return "".join(lines)


def main(path: Path) -> None:
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    sys.path.insert(0, os.getcwd())
    page = Page()
    if (before := companion(path)).exists():
        page.run(before.read_text(encoding="utf-8"), str(before))
    document = Document.parse(
        str(path), SkipParser(), CodeBlockParser("python", page.python), CodeBlockParser("console", page.console)
    )
    for example in document:
        try:
            example.evaluate()
        except SkipTest as reason:
            print(f"{path.name}:{example.line}: not run: {reason}")
    after: Any = page.names.get("after")
    if after is not None:
        after()
    page.runner.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
