"""Unpacks Debian packages and all that they depend on into a folder, without root and without touching the system.

A root is not a booted system: no maintainer script runs. Programs in it run through its own loader (`Root.command`), so
the libc of the build machine does not matter.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from .mirror import KEYRING, find_mirror

# Changes when the way of unpacking changes; the packages themselves are part of the key already.
RECIPE_VERSION = 1


class InstallError(Exception):
    """A root could not be made; the message holds the failed command and the end of its output."""


@dataclass(frozen=True)
class Recipe:
    """What a root is made of. Its digest names the folder, so a changed recipe never meets an old root."""

    name: str
    packages: tuple[str, ...]
    suites: tuple[str, ...] = ("trixie",)
    # apt's -t: the suite that wins. Pinning single packages to backports fails on their dependencies.
    release: str = "trixie"
    foreign: tuple[str, ...] = ()

    def key(self) -> str:
        text = json.dumps([RECIPE_VERSION, asdict(self)], sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Root:
    """An unpacked root for x86-64."""

    path: Path

    def command(self, program: str, *args: str) -> list[str]:
        """The command line that runs `program` (a path inside the root) with the root's loader and libraries."""
        libraries = ":".join(str(self.path / folder) for folder in ("usr/lib/x86_64-linux-gnu", "usr/lib"))
        loader = self.path / "usr/lib64/ld-linux-x86-64.so.2"
        return [str(loader), "--library-path", libraries, str(self.path / program), *args]


def cache_folder() -> Path:
    """Where everything fetched is kept, outside the repository: XIO_LAB_CACHE, else ~/.cache/xio-lab."""
    chosen = os.environ.get("XIO_LAB_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "xio-lab"


def ensure_root(recipe: Recipe) -> Root:
    """The root for `recipe`, made if it is not there yet. Safe to call from several processes at once."""
    path = cache_folder() / recipe.key()
    with exclusive(path):
        if not path.is_dir():
            with staging_folder(path) as staged:
                _download(recipe, staged / "apt")
                _unpack(staged / "apt" / "cache" / "archives", staged / "root")
                (staged / "root").rename(path)
    return Root(path)


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds a lock beside `path`, so that two installs do not make the same thing twice."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(path.name + ".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def staging_folder(path: Path) -> Iterator[Path]:
    """A temporary folder on the same filesystem as `path`, so that a finished result is renamed into place at once."""
    staged = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def run_quietly(command: Sequence[str], **options: object) -> str:
    """Runs a command for its output; a failure is an InstallError that shows the end of what it printed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise InstallError(f"{' '.join(command)}: exit status {done.returncode}\n{tail}")
    return str(done.stdout)


def _download(recipe: Recipe, apt: Path) -> None:
    """apt with folders of its own: an empty status file means that every dependency is fetched."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True)
    (apt / "status").touch()
    signed = f"[signed-by={KEYRING}] " if KEYRING.is_file() else ""
    mirror = find_mirror()
    (apt / "sources.list").write_text("".join(f"deb {signed}{mirror} {suite} main\n" for suite in recipe.suites))
    config = apt / "apt.conf"
    config.write_text(_apt_configuration(apt, ("amd64", *recipe.foreign)))
    run_quietly(["apt-get", "-c", str(config), "-q", "update"])
    run_quietly(
        ["apt-get", "-c", str(config), "-q", "-y", "--no-install-recommends", "--download-only"]
        + ["-t", recipe.release, "install", *recipe.packages]
    )


def _apt_configuration(apt: Path, architectures: Sequence[str]) -> str:
    settings = {
        "Dir::State": apt / "state",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "APT::Architecture": "amd64",
        "APT::Sandbox::User": pwd.getpwuid(os.geteuid()).pw_name,
        "Acquire::Retries": "3",
        "Acquire::Languages": "none",
        "Debug::NoLocking": "true",
    }
    # Hooks of the system's own configuration (container images delete archives after each install) are lists, which can
    # only be emptied by #clear.
    cleared = ("APT::Architectures", "DPkg::Post-Invoke", "APT::Update::Post-Invoke", "APT::Update::Post-Invoke-Success")
    lines = [f"#clear {name};" for name in cleared]
    lines += [f'{name} "{value}";' for name, value in settings.items()]
    lines += ["APT::Architectures { " + " ".join(f'"{name}";' for name in architectures) + " };"]
    return "\n".join(lines) + "\n"


def _unpack(archives: Path, root: Path) -> None:
    """Unpacks in name order. The links of a merged /usr come first, or packages would make folders in their place."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in sorted(archives.glob("*.deb")):
        run_quietly(["dpkg-deb", "-x", str(package), str(root)])
