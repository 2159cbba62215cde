"""Each peer's own environment, in the cache folder: made the first time, with pinned versions, and used again.

Nothing of it is a dependency of the project, and nothing of it is in the project's environment.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from servers.debian import prefix
from servers.errors import Unavailable
from servers.places import cache, made_once
from servers.progress import say

from peers.peer import Peer

BENCHMARKS = Path(__file__).resolve().parents[1]
PROGRAMS = Path(__file__).resolve().parent / "programs"

#: honker's wheel needs a C library of at least this version. Where this machine's is older, it runs with all of
#: another Debian's Python.
HONKER_GLIBC = (2, 38)
NEWER_DEBIAN, ITS_PYTHON = "trixie", "3.13"


@dataclass(frozen=True)
class Installation:
    """How a peer's program is started."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    #: What the program is told besides: where its modules are.
    told: Mapping[str, str] = field(default_factory=dict)


def installed(peer: Peer) -> Installation:
    """Return how to start a peer, installing it unless it was before; raise Unavailable where it can't be had."""
    if peer.node:
        return _in_node(peer)
    module = ["-m", f"peers.programs.{peer.module}"]
    if not peer.pins:
        return Installation([sys.executable, *module], {"PYTHONPATH": str(BENCHMARKS)})
    if peer.name == "honker" and _glibc() < HONKER_GLIBC:
        return _with_another_python(peer, module)
    venv = made_once(_place(peer, platform.python_version()), lambda folder: _make_venv(folder, peer))
    return Installation([str(venv / "bin" / "python"), *module], {"PYTHONPATH": str(BENCHMARKS)})


def _place(peer: Peer, *more: str) -> Path:
    digest = hashlib.sha256("\n".join((*peer.pins, *more)).encode()).hexdigest()[:12]
    return cache() / "peers" / f"{peer.name}-{digest}"


def _make_venv(folder: Path, peer: Peer) -> None:
    say(f"installing {' '.join(peer.pins)}")
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], peer)
    _pip(["--python", str(folder / "bin" / "python")], [], peer)


def _pip(which: Sequence[str], where: Sequence[str], peer: Peer) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", *which]
    _run([*pip, "install", "--quiet", *where, *peer.pins], peer)


def _with_another_python(peer: Peer, module: Sequence[str]) -> Installation:
    python = prefix("python3", NEWER_DEBIAN, programs_in="bin")

    def make(folder: Path) -> None:
        say(f"installing {' '.join(peer.pins)} for Python {ITS_PYTHON} of Debian {NEWER_DEBIAN}")
        tags = ["--platform", f"manylinux_2_38_{platform.machine()}", "--python-version", ITS_PYTHON]
        _pip([], ["--target", str(folder), *tags, "--only-binary", ":all:"], peer)

    packages = made_once(_place(peer, NEWER_DEBIAN), make)
    environment = {"PYTHONHOME": str(python.folder / "usr"), "PYTHONPATH": f"{packages}{os.pathsep}{BENCHMARKS}"}
    return Installation([*python.command(f"bin/python{ITS_PYTHON}"), *module], environment)


def _in_node(peer: Peer) -> Installation:
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        raise Unavailable("it needs Node, and there is no node or no npm on the PATH")

    def make(folder: Path) -> None:
        say(f"installing {' '.join(peer.pins)}")
        _run([npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), *peer.pins], peer)

    modules = made_once(_place(peer), make)
    return Installation([node, str(PROGRAMS / f"{peer.module}.mjs")], told={"modules": str(modules)})


def _glibc() -> tuple[int, ...]:
    name, version = platform.libc_ver()
    return tuple(int(part) for part in version.split(".")) if name == "glibc" else (0,)


def _run(command: Sequence[str], peer: Peer) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        errors = [line for line in said if "error" in line.lower()] or said[-1:]
        raise Unavailable(f"{peer.name} could not be installed: {errors[0] if errors else done.returncode}")
