"""Finds a root's kernel, and takes the uncompressed one out of its bzImage: QEMU starts it several seconds sooner under emulation.

Header fields: kernel documentation, arch/x86/boot ("setup_sects" at 1F1h, "payload_offset" at 248h, "payload_length" at 24Ch).
"""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

from debian.root import InstallError, Root

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ELF_MAGIC = b"\x7fELF"


def kernel_release(root: Root) -> str:
    """The release of the one kernel in a root, as `uname -r` gives it."""
    (folder,) = (root.path / "usr/lib/modules").iterdir()
    return folder.name


def bzimage(root: Root) -> Path:
    """The one kernel in a root: beside its modules, where Debian has put it since 7.x, or in /boot."""
    release = kernel_release(root)
    beside = root.path / "usr/lib/modules" / release / "vmlinuz"
    return beside if beside.is_file() else root.path / "boot" / f"vmlinuz-{release}"


def extract_vmlinux(guest: Root, path: Path) -> bytes:
    """The ELF inside the bzImage at `path`, unpacked with the guest root's own zstd."""
    image = path.read_bytes()
    (setup_sectors,) = struct.unpack_from("<B", image, 0x1F1)
    payload_offset, payload_length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + payload_offset
    # The last four bytes of the payload are its unpacked size, which is no part of the zstd stream.
    payload = image[start : start + payload_length - 4]
    if not payload.startswith(ZSTD_MAGIC):
        raise InstallError(f"{path}: the kernel's payload is not zstd; ci/lab/kernel.py knows no other kind")
    done = subprocess.run(
        guest.command("usr/bin/zstd", "-dc"), input=payload, capture_output=True, check=False
    )
    if done.returncode != 0 or not done.stdout.startswith(ELF_MAGIC):
        raise InstallError(f"{path}: cannot unpack the kernel: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
