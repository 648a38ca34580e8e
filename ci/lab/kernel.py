"""Takes the uncompressed kernel out of a bzImage: QEMU starts it several seconds sooner under emulation.

Header fields: kernel documentation, arch/x86/boot ("setup_sects" at 1F1h, "payload_offset" at 248h, "payload_length" at 24Ch).
"""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

from debian.root import InstallError, Root

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ELF_MAGIC = b"\x7fELF"


def extract_vmlinux(guest: Root, bzimage: Path) -> bytes:
    """The ELF inside `bzimage`, unpacked with the guest root's own zstd."""
    image = bzimage.read_bytes()
    (setup_sectors,) = struct.unpack_from("<B", image, 0x1F1)
    payload_offset, payload_length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + payload_offset
    # The last four bytes of the payload are its unpacked size, which is no part of the zstd stream.
    payload = image[start : start + payload_length - 4]
    if not payload.startswith(ZSTD_MAGIC):
        raise InstallError(f"{bzimage}: the kernel's payload is not zstd; ci/lab/kernel.py knows no other kind")
    done = subprocess.run(
        guest.command("usr/bin/zstd", "-dc"), input=payload, capture_output=True, check=False
    )
    if done.returncode != 0 or not done.stdout.startswith(ELF_MAGIC):
        raise InstallError(f"{bzimage}: cannot unpack the kernel: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
