"""A disk that a BIOS boots: GRUB in front, the lab's kernel and its root file system on a partition. Made once and kept in the cache.

The BIOS reads the first sector (GRUB's boot.img), that one the sectors behind it (GRUB's core image), that one the kernel and a small initramfs off the partition, which mounts the partition as the root and goes on there with the
lab's own init.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
from pathlib import Path

from debian.root import Recipe, Root, cache_folder, ensure_root, exclusive, run_quietly, staging_folder

from .cpio import Cpio
from .initramfs import with_dependencies
from .installed import GUEST, ensure_lab
from .kernel import bzimage, kernel_release

LOADER = Recipe("loader", packages=("grub-common", "grub-pc-bin"))
SECTOR_BYTES = 512
PARTITION_SECTOR = 2048
PARTITION_MIB = 512
# What GRUB says on the serial port before it loads the kernel, and what the kernel is told.
GREETING = "xio-lab: GRUB runs off this disk"
ARGUMENT = "lab.from-disk"
# What the small initramfs must have of the kernel's modules.
MODULES = ("nvme", "virtio_blk", "ext4")

GRUB = f"""
serial --unit=0
terminal_output serial
echo '{GREETING}'
linux (hd0,msdos1)/boot/vmlinuz console=ttyS0 loglevel=5 panic=-1 nokaslr mitigations=off random.trust_cpu=on no_timer_check {ARGUMENT}
initrd (hd0,msdos1)/boot/initrd
boot
"""

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
# The file system asks for its checksum by an algorithm's name, which no dependency says.
for module in crc32c_generic nvme virtio_blk ext4; do modprobe $module; done
disk=
while test -z "$disk"; do
    for found in /dev/nvme*n1p1 /dev/vd?1; do test -b $found && disk=$found; done
    sleep 0.1
done
mount -t ext4 $disk /disk
umount /dev /sys /proc
exec switch_root /disk /init
"""


def ensure_boot_disk() -> Path:
    """The disk's image, half a GiB with holes. Who writes to it copies it."""
    lab, guest, loader = ensure_lab(), ensure_root(GUEST), ensure_root(LOADER)
    key = hashlib.sha256(f"{lab.initramfs} {loader.path.name}".encode() + Path(__file__).read_bytes()).hexdigest()[:12]
    folder = cache_folder() / f"bootdisk-{key}"
    with exclusive(folder):
        if not folder.is_dir():
            with staging_folder(folder) as staged:
                made = staged / "made"
                made.mkdir()
                _make(made / "disk", staged, lab.initramfs, guest, loader)
                made.rename(folder)
    return folder / "disk"


def _make(disk: Path, staged: Path, initramfs: Path, guest: Root, loader: Root) -> None:
    tree = staged / "tree"
    tree.mkdir()
    run_quietly([str(guest.path / "usr/bin/busybox"), "sh", "-c", f"cd {tree} && {guest.path}/usr/bin/busybox cpio -id < {initramfs} 2>/dev/null"])
    (tree / "boot").mkdir()
    shutil.copyfile(bzimage(guest), tree / "boot/vmlinuz")
    (tree / "boot/initrd").write_bytes(_small_initramfs(tree, kernel_release(guest)))
    partition = staged / "ext4"
    run_quietly(guest.command("usr/sbin/mke2fs", "-q", "-t", "ext4", "-d", str(tree), str(partition), f"{PARTITION_MIB}M"))
    boot, core = _grub(staged, loader)
    with open(disk, "wb") as image:
        # One partition that begins at the first MiB, of Linux (83h); old fields say "too large" (PC's master boot record).
        entry = struct.pack("<B3sB3sII", 0x80, b"\xfe\xff\xff", 0x83, b"\xfe\xff\xff", PARTITION_SECTOR, PARTITION_MIB << 11)
        image.write(boot[:446] + entry + bytes(48) + b"\x55\xaa")
        image.write(core)
    run_quietly(["dd", f"if={partition}", f"of={disk}", "bs=1M", "seek=1", "conv=sparse,notrunc"])
    with open(disk, "r+b") as image:
        image.truncate((PARTITION_MIB + 1) << 20)


def _small_initramfs(tree: Path, release: str) -> bytes:
    """Busybox and what finds the disk."""
    archive = Cpio()
    for name in ("proc", "sys", "dev", "disk"):
        archive.add_folder(name)
    archive.add_path("bin/busybox", tree / "usr/bin/busybox")
    archive.add_file("init", INIT.encode(), executable=True)
    modules = tree / "usr/lib/modules" / release
    for path in sorted(modules.glob("modules.*")):
        archive.add_path(f"lib/modules/{release}/{path.name}", path)
    for relative in with_dependencies(MODULES, ("crc32c_generic", "crc32c_intel"), modules / "modules.dep"):
        archive.add_path(f"lib/modules/{release}/{relative}", modules / relative)
    return archive.to_bytes()


def _grub(staged: Path, loader: Root) -> tuple[bytes, bytes]:
    """The first sector, and what it loads from the sectors behind it."""
    modules = loader.path / "usr/lib/grub/i386-pc"
    config, core = staged / "grub.cfg", staged / "core.img"
    config.write_text(GRUB, encoding="utf-8")
    wanted = ("biosdisk", "part_msdos", "ext2", "linux", "serial", "terminal", "echo", "normal", "boot")
    arguments = ("-O", "i386-pc", "-d", str(modules), "-p", "(hd0,msdos1)/boot/grub", "-c", str(config), "-o", str(core))
    run_quietly(loader.command("usr/bin/grub-mkimage", *arguments, *wanted))
    loaded = core.read_bytes()
    if len(loaded) > (PARTITION_SECTOR - 1) * SECTOR_BYTES:
        raise ValueError(f"GRUB's core image has {len(loaded)} bytes, and the partition begins before they end")
    return (modules / "boot.img").read_bytes(), loaded
