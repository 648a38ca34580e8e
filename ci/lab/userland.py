"""A whole Debian userland for a guest, on a disk of its own: for suites of tests that want more than the lab's initramfs has.

The disk is made once and kept in the cache. A guest that writes to it writes to a copy (`snapshot=on`), so every guest finds it new.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from debian.root import Recipe, Root, cache_folder, ensure_root, exclusive, run_quietly, staging_folder

# Room for what a suite writes to its disk, above what the packages take.
DISK_SIZE = "2G"
SERIAL = "userland"


@dataclass(frozen=True)
class Userland:
    """The packages, unpacked, and the disk that holds the same."""

    root: Root
    disk: Path

    def options(self) -> list[str]:
        """QEMU's options for a guest that has it as a virtio disk: /dev/vda, or the one whose serial number is SERIAL."""
        drive = f"file={self.disk},if=none,id=userland,format=raw,snapshot=on"
        return ["-drive", drive, "-device", f"virtio-blk-pci,drive=userland,serial={SERIAL}"]


def ensure_userland(recipe: Recipe) -> Userland:
    """The userland of `recipe`, which must name e2fsprogs: made if it is not there yet, about half a minute from nothing."""
    root = ensure_root(recipe)
    folder = cache_folder() / f"disk-{recipe.key()}"
    with exclusive(folder):
        if not folder.is_dir():
            with staging_folder(folder) as staged:
                made = staged / "disk"
                made.mkdir()
                run_quietly(root.command("usr/sbin/mke2fs", "-q", "-t", "ext4", "-d", str(root.path), str(made / "ext4"), DISK_SIZE))
                made.rename(folder)
    return Userland(root, folder / "ext4")
