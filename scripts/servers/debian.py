"""A Debian package of any suite in a folder of its own, next to whatever this machine has installed.

apt-get works for any user on state of its own, and checks signatures and hashes as it always does. What is
fetched is the package with every library that it needs, the C library included: run through that library's
own loader (`Prefix.command`), a program of Debian sid runs on Debian 12. Nothing is installed, nothing asks
for root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from servers.errors import Unavailable
from servers.places import cache, made_once
from servers.progress import say

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
NOT_NEEDED = ("share/doc", "share/man", "share/lintian", "share/gdb", "share/gcc", "share/locale", "bin")

# "perl is installed": a server's package has scripts in it that are not run here, and need all of perl.
STATUS = """\
Package: perl
Status: install ok installed
Priority: optional
Section: perl
Maintainer: none <none@localhost>
Architecture: {architecture}
Multi-Arch: allowed
Version: 99
Description: a stand-in

"""

# Check-Valid-Until: sid's index says that it is good for a week, and some mirrors are older than that.
# Sandbox::User: no switch to a user who can't write here. NoLocking: no lock that only root can take.
CONFIG = """\
Dir::Etc::sourcelist "{state}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "{state}";
Dir::State::lists "{state}/lists";
Dir::State::status "{state}/status";
Dir::Cache "{state}/cache";
Dir::Log "{state}";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::Check-Valid-Until "false";
APT::Sandbox::User "root";
APT::Get::Assume-Yes "true";
APT::Install-Recommends "false";
APT::Architecture "{architecture}";
Debug::NoLocking "true";
"""


@dataclass(frozen=True)
class Prefix:
    """An unpacked package: `usr` in this folder is its /usr."""

    folder: Path

    def command(self, program: str) -> list[str]:
        """Return what runs one of its programs with its libraries, and with none of this machine's."""
        library = next(self.folder.glob("usr/lib/*/libc.so.6")).parent
        loader = next(library.glob("ld-linux*.so.*"))
        run = [str(loader), "--inhibit-cache", "--library-path", str(library)]
        return [*run, str(self.folder / "usr" / program)]


def prefix(package: str, suite: str, *, programs_in: str = "sbin") -> Prefix:
    """Return the package of that suite, fetched unless it was before. `programs_in` is where in /usr its own are."""

    def fetch(folder: Path) -> None:
        _refuse_without_apt()
        say(f"fetching {package} from Debian {suite}")
        state = folder / "apt"
        apt = _apt_on_its_own(state, suite)
        _run([*apt, "update"], state)
        _run([*apt, "--download-only", "install", package], state)
        for archive in (state / "cache" / "archives").glob("*.deb"):
            _run(["dpkg-deb", "-x", str(archive), str(folder)], state)
        shutil.rmtree(state)
        _tidy(folder, programs_in)

    return Prefix(made_once(cache() / "programs" / f"{package}-{suite}", fetch))


def _refuse_without_apt() -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable("it comes from Debian, and there is no apt-get")
    if not KEYRING.exists():
        raise Unavailable(f"it comes from Debian, and there is no {KEYRING} (package {KEYRING.stem})")


def _apt_on_its_own(state: Path, suite: str) -> list[str]:
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True)
    architecture = _output(["dpkg", "--print-architecture"])
    (state / "status").write_text(STATUS.format(architecture=architecture))
    (state / "sources.list").write_text(f"deb [signed-by={KEYRING}] {_mirror()} {suite} main\n")
    (state / "apt.conf").write_text(CONFIG.format(state=state, architecture=architecture))
    return ["apt-get", "-qq"]


def _mirror() -> str:
    """Return the mirror that this machine's own apt uses; `DEBIAN_MIRROR` names another one."""
    if chosen := os.environ.get("DEBIAN_MIRROR"):
        return chosen
    known = _output(["apt-get", "indextargets", "--format", "$(ORIGIN)|$(REPO_URI)"])
    for line in sorted(known.splitlines()):
        origin, _, uri = line.partition("|")
        if origin in ("Debian", "") and "debian" in uri and "security" not in uri:
            return uri
    raise Unavailable("it comes from Debian, and apt knows no mirror of that here: set DEBIAN_MIRROR")


def _tidy(folder: Path, programs_in: str) -> None:
    """Merge /lib into /usr/lib, as newer suites do, to have one library folder; drop what is not run."""
    for name in ("lib", "lib64", "sbin", "bin"):
        if (old := folder / name).is_dir() and not old.is_symlink():
            shutil.copytree(old, folder / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(old)
    for name in NOT_NEEDED:
        if name != programs_in:
            shutil.rmtree(folder / "usr" / name, ignore_errors=True)
    shutil.rmtree(folder / "etc", ignore_errors=True)
    for converters in list(folder.glob("usr/lib/*/gconv")):
        shutil.rmtree(converters)


def _output(command: list[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.strip()


def _run(command: list[str], state: Path) -> None:
    environment = os.environ | {"APT_CONFIG": str(state / "apt.conf"), "LC_ALL": "C"}
    done = subprocess.run(command, cwd=state, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        told = done.stderr.splitlines()
        errors = [line for line in told if line.startswith("E:")] or told[-1:]
        raise Unavailable(f"{command[0]}: {errors[0] if errors else f'exit code {done.returncode}'}")
