"""Writes cpio archives of the "newc" kind, the form that Linux unpacks as its initramfs.

Several archives may follow each other in one file: that is how a script is added to a finished initramfs. Layout: kernel
documentation, driver-api/early-userspace/buffer-format.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


class Cpio:
    """An archive in the making. Parent folders are added by themselves."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[int, bytes]] = {}

    def add_folder(self, name: str) -> None:
        name = name.strip("/")
        if name and name not in self._entries:
            self.add_folder(os.path.dirname(name))
            self._entries[name] = (stat.S_IFDIR | 0o755, b"")

    def add_file(self, name: str, content: bytes, *, executable: bool = False) -> None:
        self._add(name, stat.S_IFREG | (0o755 if executable else 0o644), content)

    def add_link(self, name: str, target: str) -> None:
        self._add(name, stat.S_IFLNK | 0o777, target.encode())

    def add_path(self, name: str, path: Path) -> None:
        """The content of `path`, links followed, with its executable bit."""
        self.add_file(name, path.read_bytes(), executable=os.access(path, os.X_OK))

    def _add(self, name: str, mode: int, content: bytes) -> None:
        name = name.strip("/")
        self.add_folder(os.path.dirname(name))
        self._entries[name] = (mode, content)

    def to_bytes(self) -> bytes:
        parts = [
            _entry(inode, name, mode, content)
            for inode, (name, (mode, content)) in enumerate(self._entries.items(), start=1)
        ]
        return b"".join([*parts, _entry(0, "TRAILER!!!", 0, b"")])


def _entry(inode: int, name: str, mode: int, content: bytes) -> bytes:
    encoded = name.encode() + b"\0"
    links, zero = 1, 0
    fields = (inode, mode, zero, zero, links, zero, len(content), zero, zero, zero, zero, len(encoded), zero)
    header = b"070701" + b"".join(b"%08x" % field for field in fields)
    return _padded(header + encoded) + _padded(content)


def _padded(part: bytes) -> bytes:
    return part + bytes(-len(part) % 4)
