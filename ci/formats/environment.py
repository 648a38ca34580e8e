"""A virtual environment with the formats' own readers, in the cache: fixtures/formats/requirements.txt."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from debian.root import cache_folder, exclusive

REQUIREMENTS = Path(__file__).resolve().parents[2] / "fixtures/formats/requirements.txt"


class NoReaders(Exception):
    """They cannot be installed here; says why."""


def folder() -> Path:
    """Where the environment is, or will be: the name is the digest of what makes it."""
    recipe = REQUIREMENTS.read_text(encoding="utf-8") + sys.version
    return cache_folder() / f"formats-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"


def python() -> Path:
    """Its interpreter."""
    return folder() / "bin/python"


def ensure() -> None:
    """Makes the environment if it is not there yet. Safe to call from several processes at once."""
    path = folder()
    complete = path / "complete"
    with exclusive(path):
        if complete.exists():
            return
        shutil.rmtree(path, ignore_errors=True)
        try:
            venv.create(path, with_pip=True)
        except subprocess.CalledProcessError as error:
            raise NoReaders("Python's venv has no pip here; on Debian: apt-get install python3-venv") from error
        install = ("-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--require-hashes", "-r", REQUIREMENTS)
        if subprocess.run([python(), *install], check=False).returncode != 0:
            raise NoReaders("PyPI does not give them here")
        complete.touch()
