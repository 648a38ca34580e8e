"""The installed lab: QEMU, a kernel and an initramfs, made once and kept in the cache."""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass
from pathlib import Path

from debian.root import Recipe, Root, cache_folder, ensure_root, exclusive, staging_folder

from .initramfs import build_initramfs
from .kernel import bzimage, extract_vmlinux

# vfio-user-pci needs QEMU 10.1 or later, which only backports has. Without recommends: they are a gigabyte.
QEMU = Recipe(
    "qemu",
    packages=("qemu-system-x86",),
    suites=("trixie", "trixie-backports"),
    release="trixie-backports",
)
# The full kernel, not the cloud one, which lacks 9p and rdma_rxe.
GUEST = Recipe(
    "guest",
    packages=(
        "busybox-static",
        "coreutils",
        "e2fsprogs",
        "erofs-utils",
        "fio",
        "ibverbs-providers",
        "iproute2",
        "kmod",
        "libgcc-s1",
        "librdmacm1",
        "linux-image-amd64",
        "nvme-cli",
        "perftest",
        "python3-minimal",
        "rdmacm-utils",
        "xfsprogs",
        "xz-utils",
        "zstd",
    ),
)


# Its kernel alone: the programs in the guest are those of GUEST. kmod comes with it, for depmod.
NEWEST = Recipe(
    "kernel-newest",
    packages=("linux-image-amd64",),
    suites=("trixie", "trixie-backports"),
    release="trixie-backports",
)


class Kernel(enum.Enum):
    """What a guest runs. Packages are those of the day on which the lab was installed."""

    STABLE = "stable"
    """trixie's: 6.12."""
    NEWEST = "newest"
    """trixie-backports': 7.3 in November 2026."""


@dataclass(frozen=True)
class Lab:
    """What a guest is started from."""

    qemu: Root
    vmlinux: Path
    initramfs: Path


def ensure_lab(kernel: Kernel = Kernel.STABLE) -> Lab:
    """The lab, installed if it is not there yet; about half a minute from nothing."""
    qemu, guest = ensure_root(QEMU), ensure_root(GUEST)
    booted = guest if kernel is Kernel.STABLE else ensure_root(NEWEST)
    path = cache_folder() / f"boot-{_boot_key(guest, booted)}"
    with exclusive(path):
        if not path.is_dir():
            with staging_folder(path) as staged:
                boot, work = staged / "boot", staged / "work"
                boot.mkdir()
                work.mkdir()
                (boot / "vmlinux").write_bytes(extract_vmlinux(guest, bzimage(booted)))
                (boot / "initramfs").write_bytes(build_initramfs(guest, booted, work))
                boot.rename(path)
    return Lab(qemu, path / "vmlinux", path / "initramfs")


def _boot_key(guest: Root, booted: Root) -> str:
    """Changes with the guest's packages and with every file here that shapes the initramfs."""
    digest = hashlib.sha256(f"{guest.path.name} {booted.path.name}".encode())
    folder = Path(__file__).parent
    for path in [folder / "cpio.py", folder / "initramfs.py", folder / "kernel.py", *sorted((folder / "guest").iterdir())]:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]
