"""A guest whose BIOS boots snap-target's disk: SeaBIOS's own driver reads the boot sector and the boot loader's sectors, GRUB reads the kernel through it, and the kernel's driver has its root file system there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from debian.root import run_quietly
from lab.bootdisk import ARGUMENT, GREETING, ensure_boot_disk
from lab.start import start_guest

from .daemon import Daemon
from .report import Report, expect, expect_that

NQN = "nqn.2014-08.org.nvmexpress:xio-lab-boot"
MEMORY = "1024M"
SECONDS_MAX = 400


class BootTarget(Daemon):
    """snap-target with a file that a BIOS boots, over vfio-user and over vhost-user-blk: one guest at a time."""

    def __init__(self, snap_target: Sequence[str], folder: Path) -> None:
        super().__init__(folder / "boot.log")
        self.disk = folder / "boot.raw"
        run_quietly(["cp", "--sparse=always", str(ensure_boot_disk()), str(self.disk)])
        self._function, self._virtio = folder / "boot-function", folder / "boot-virtio"
        # SeaBIOS boots disks with blocks of 512 bytes.
        self._command = [*snap_target, f"file:{self.disk}", "--lba", "512", "--listen", f"127.0.0.1:{self.port}", "--nqn", NQN]
        self._command += ["--vfio-user", str(self._function), "--vhost-user-blk", str(self._virtio)]

    def start(self) -> None:
        self.run(self._command, self._function, self._virtio)

    def options(self, driver: str) -> list[str]:
        """QEMU's, for a guest that has the disk by one of both drivers, and no other disk."""
        shared = ["-object", f"memory-backend-memfd,id=mem,size={MEMORY},share=on", "-machine", "memory-backend=mem"]
        if driver == "nvme":
            device = {"driver": "vfio-user-pci", "socket": {"type": "unix", "path": str(self._function)}}
            return [*shared, "-device", json.dumps(device)]
        return [*shared, "-chardev", f"socket,id=disk,path={self._virtio}", "-device", "vhost-user-blk-pci,chardev=disk,num-queues=1"]


def run(report: Report, snap_target: Sequence[str], folder: Path, driver: str) -> None:
    """Boots twice: what the first guest writes to its root the second reads."""
    disk = {"nvme": "/dev/nvme0n1p1", "virtio": "/dev/vda1"}[driver]
    target = BootTarget(snap_target, folder)
    target.start()
    try:
        for number in (1, 2):
            with report.test(f"SeaBIOS boots a {driver} disk: GRUB, the kernel, and its root, time {number}"):
                with start_guest(SECONDS_MAX, options=target.options(driver), from_disk=True) as guest:
                    expect_that("GRUB ran off the disk", GREETING in guest.console())
                    expect_that("it loaded the kernel", ARGUMENT in guest.run("cat /proc/cmdline").checked())
                    expect("the root", guest.run("grep ' / ' /proc/mounts").checked().split()[0], disk)
                    if number == 1:
                        guest.run("dd if=/dev/urandom of=/kept bs=1M count=16 status=none && sha256sum /kept > /sum && sync").checked()
                    else:
                        guest.run("sha256sum -c /sum").checked()
        target.expect_alive()
        target.stop()
    finally:
        target.kill()
