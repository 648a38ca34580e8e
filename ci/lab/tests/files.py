"""A folder that `xio pack` has made a disk of: what a guest finds when it mounts that."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lab.guest import Guest

from .report import expect
from .volumes import FIXTURES, PackFailed

FOLDER = FIXTURES.parent / "dataset"


def pack(xio: Sequence[str], volume: Path) -> None:
    command = [*xio, "pack", str(FOLDER), "-o", str(volume)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PackFailed(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr.strip()}")


def expect_mounted(guest: Guest, disk: str) -> None:
    """Its EROFS is mounted, and has each file of the folder with its SHA-256, and no others but what says how they are stored."""
    guest.run(f"mkdir -p /mnt/files && mount -t erofs -o ro {disk} /mnt/files").checked()
    found = guest.run("cd /mnt/files && find . -type f -not -path './.xio/*' | xargs sha256sum", 120).checked()
    guest.run("umount /mnt/files").checked()
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    wanted = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  ./{path.relative_to(FOLDER)}" for path in files]
    expect("digests and files", sorted(found.splitlines()), sorted(wanted))
