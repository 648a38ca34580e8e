"""Virtio disks in a guest: what its stock driver sees of a dataset, of memory and of a file, and what it does when the daemon is killed."""

from __future__ import annotations

import hashlib
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import qmp
from lab.guest import Guest

from . import files
from .daemon import STOP_SECONDS_MAX, Administered
from .function import xfs_verified
from .operated import DRAIN_SECONDS
from .report import Report, expect, expect_that, wait_for
from .volumes import FIXTURES, LBA_BYTES, PackFailed

# The guest's; all of it is shared with the daemon.
MEMORY_MIB = 1024
DATASET = FIXTURES / "r50k-u32.bin"
# Of less than 300 mkfs.xfs makes no file system.
DISK_MIB = 320
QUEUES = 2
# By namespace number: the guest's names for them.
VOLUME, MEMORY, FILE, FILES = "vda", "vdb", "vdc", "vdd"
KILLS = 5
NQN = "nqn.2014-08.org.nvmexpress:xio-lab-virtio"
GROWN_MIB = 448
# Where devices are plugged in while the guest runs, and the functions that are.
PORTS = ("port1", "port2")
HOT, HOT_DISK = "pf8", "vde"
CONTROLLER = "pf9"
PLUG_SECONDS_MAX = 60.0


class Disks:
    """A daemon with four disks: a packed dataset, memory, a file that outlives it, and a packed folder."""

    def __init__(self, program: Sequence[str], snapctl: Sequence[str], xio: Sequence[str], folder: Path) -> None:
        self.admin = folder / "admin.sock"
        self.daemon = Administered(folder / "target.log", [*snapctl, "--socket", str(self.admin)])
        self.daemon.stop_seconds_max = DRAIN_SECONDS + STOP_SECONDS_MAX
        self.folder = folder
        volume = folder / "tokens.xio"
        packed = [*xio, "pack", str(DATASET), "--dtype", "u32", "--store-as", "u16+lz4", "-o", str(volume)]
        done = subprocess.run(packed, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PackFailed(f"{' '.join(packed)}: exit status {done.returncode}\n{done.stderr.strip()}")
        self.file = folder / "disk.raw"
        with open(self.file, "wb") as file:
            file.truncate(DISK_MIB << 20)
        self.sockets = [folder / f"{nsid}.sock" for nsid in (1, 2, 3, 4)]
        devices = [word for nsid, path in enumerate(self.sockets, 1) for word in ("--vhost-user-blk", f"{path},nsid={nsid}")]
        files.pack(xio, folder / "files.xio")
        stores = [str(volume), f"mem:{DISK_MIB}MiB", f"file:{self.file}", str(folder / "files.xio")]
        self._command = [*program, *stores, "--listen", f"127.0.0.1:{self.daemon.port}", "--nqn", NQN, "--admin", str(self.admin)]
        self._command += ["--reactors", "2", *devices]

    def start(self) -> None:
        self.daemon.run(self._command, *self.sockets, self.admin)

    def options(self, packed: bool) -> list[str]:
        """QEMU's, for a guest with all of them."""
        shared = ["-object", f"memory-backend-memfd,id=mem,size={MEMORY_MIB}M,share=on", "-machine", "memory-backend=mem"]
        ring = ",packed=on" if packed else ""
        for number, path in enumerate(self.sockets):
            shared += ["-chardev", f"socket,id=disk{number},path={path},reconnect-ms=300"]
            shared += ["-device", f"vhost-user-blk-pci,chardev=disk{number},num-queues={QUEUES}{ring}"]
        for port in PORTS:
            shared += ["-device", f"pcie-root-port,id={port},chassis={port.removeprefix('port')}"]
        return [*shared, *qmp.options(self.monitor())]

    def monitor(self) -> Path:
        return self.folder / "monitor"

    def function(self, name: str) -> dict[str, Any]:
        """As snapctl shows it."""
        shown: dict[str, Any] = self.daemon.asked("function", "show", name)["function"]
        return shown


def run(report: Report, guest: Guest, disks: Disks, ring: str, seconds: int) -> None:
    guest.run("modprobe virtio_blk").checked()
    with report.test(f"{ring}: the driver sees what is offered"):
        seen(guest, ring)
    with report.test(f"{ring}: a packed dataset reads as it was"):
        content = DATASET.read_bytes()
        expect("its digest", digest(guest, VOLUME, len(content)), hashlib.sha256(content).hexdigest())
        rest = LBA_BYTES - len(content) % LBA_BYTES
        if rest < LBA_BYTES:
            script = f"tail -c {rest} /dev/{VOLUME} | tr -d '\\0' | wc -c"
            expect("bytes behind it that are not zero", guest.run(script).checked().strip(), "0")
    with report.test(f"{ring}: a packed folder is mounted, and each file has its SHA-256"):
        files.expect_mounted(guest, f"/dev/{FILES}")
    with report.test(f"{ring}: a read-only disk takes no write"):
        expect_that("dd fails", guest.run(f"dd if=/dev/zero of=/dev/{VOLUME} bs=4k count=1 oflag=direct").status != 0)
    for disk, what in ((MEMORY, "memory"), (FILE, "a file")):
        with report.test(f"{ring}: fio writes {what} and reads it back"):
            verified(guest.run(fio(disk, "randrw", "--io_size=64m --loops=1"), 180).checked())
        with report.test(f"{ring}: ext4 on {what}: mkfs, files, fsck"):
            filesystem(guest, disk)
        with report.test(f"{ring}: xfs on {what}: mkfs, fio with random sizes, repair"):
            xfs_verified(guest, f"/dev/{disk}")
        with report.test(f"{ring}: discard and write zeroes on {what}"):
            zeroed(guest, disk)
    with report.test(f"{ring}: what was written and flushed is in the file"):
        flushed(guest, disks)
    with report.test(f"{ring}: a file that grows is a disk that grows, under a mounted ext4, which takes the room"):
        grown(guest, disks)
    with report.test(f"{ring}: a namespace that goes and comes again under I/O is a pause"):
        paused(guest, disks)
    with qmp.Monitor(disks.monitor()) as monitor:
        with report.test(f"{ring}: a disk that is made while the guest runs is plugged in, beside an NVMe function of the same namespace"):
            plugged(guest, disks, monitor, ring)
        with report.test(f"{ring}: unplugged and deleted, they take no other disk along"):
            unplugged(guest, disks, monitor)
    with report.test(f"{ring}: the write cache is turned off and on, and stays off when the daemon is killed"):
        cached(guest, disks)
    with report.test(f"{ring}: the daemon is killed {KILLS} times while fio runs, and no byte is wrong"):
        killed(guest, disks, seconds)
    with report.test(f"{ring}: the daemon is stopped and started while fio runs"):
        killed(guest, disks, seconds, gently=True)
    with report.test(f"{ring}: the dataset reads as it was afterwards"):
        content = DATASET.read_bytes()
        expect("its digest", digest(guest, VOLUME, len(content)), hashlib.sha256(content).hexdigest())
    with report.test(f"{ring}: memory that ended with the daemon is another disk: errors for the driver that knows the first"):
        for script in (f"dd if=/dev/{MEMORY} of=/dev/null", f"dd if=/dev/zero of=/dev/{MEMORY} oflag=direct"):
            expect_that(script, guest.run(f"{script} bs=4k count=1 status=none").status != 0)
    with report.test(f"{ring}: an idle daemon sleeps"):
        idle(disks)
    with report.test(f"{ring}: the guest's kernel has nothing to complain of"):
        complaints = re.findall(r"^.*(?:I/O error|virtio_blk.*(?:error|not a head)|BUG|hung).*$", guest.console(), re.MULTILINE)
        # The write that a read-only disk refuses, and what another disk refuses.
        expect("its complaints", [line for line in complaints if VOLUME not in line and MEMORY not in line], [])
    with report.test(f"{ring}: a namespace that is detached under I/O goes: errors, no hang, and the other disks go on"):
        detached(guest, disks)


def seen(guest: Guest, ring: str) -> None:
    def attribute(disk: str, path: str) -> str:
        return guest.run(f"cat /sys/block/{disk}/{path}").checked().strip()

    for disk, sectors in ((MEMORY, DISK_MIB << 11), (FILE, DISK_MIB << 11)):
        expect(f"sectors of {disk}", int(attribute(disk, "size")), sectors)
        expect(f"{disk} is read-only", attribute(disk, "ro"), "0")
        expect_that(f"{disk} can discard", int(attribute(disk, "queue/discard_max_bytes")) > 0)
        expect_that(f"{disk} can write zeroes", int(attribute(disk, "queue/write_zeroes_max_bytes")) > 0)
    whole = -(-DATASET.stat().st_size // LBA_BYTES) * LBA_BYTES
    expect("bytes of the dataset's disk", int(attribute(VOLUME, "size")) * 512, whole)
    expect("it is read-only", attribute(VOLUME, "ro"), "1")
    for disk in (VOLUME, MEMORY, FILE):
        expect(f"block size of {disk}", attribute(disk, "queue/logical_block_size"), str(LBA_BYTES))
        expect(f"cache of {disk}", attribute(disk, "queue/write_cache"), "write back")
        expect(f"queues of {disk}", queues(guest, disk), QUEUES)
        serial = attribute(disk, "serial")
        expect_that(f"serial number {serial!r}", re.fullmatch("[0-9a-f]{20}", serial) is not None)
        # A bit for each feature, VIRTIO_F_RING_PACKED is 34, VIRTIO_F_EVENT_IDX 29, VIRTIO_F_INDIRECT_DESC 28, VIRTIO_F_VERSION_1 32.
        bits = attribute(disk, "device/features")
        expect(f"packed ring of {disk}", bits[34], "1" if ring == "packed" else "0")
        expect(f"version 1, event index, indirect descriptors of {disk}", (bits[32], bits[29], bits[28]), ("1", "1", "1"))


def queues(guest: Guest, disk: str) -> int:
    return len(guest.run(f"ls /sys/block/{disk}/mq").checked().split())


def digest(guest: Guest, disk: str, length: int) -> str:
    guest.run(f"blockdev --flushbufs /dev/{disk}")
    return guest.run(f"head -c {length} /dev/{disk} | sha256sum", 120).checked().split()[0]


def fio(disk: str, how: str, more: str) -> str:
    return (
        f"fio --name={disk} --filename=/dev/{disk} --rw={how} --bssplit=4k/40:8k/20:64k/20:512k/10:2m/10 --direct=1 --ioengine=libaio --iodepth=16 "
        f"--verify=crc32c --verify_fatal=1 --randseed=7 --size=192m --minimal {more} 2>&1"
    )


def verified(output: str) -> None:
    expect_that(f"fio found nothing wrong: {output[-800:]}", "verify:" not in output and "error" not in output.lower())


# How each is made, and looked through without being changed.
FILESYSTEMS = {"ext4": ("mkfs.ext4 -q -F", "e2fsck -f -n"), "xfs": ("mkfs.xfs -q -f", "xfs_repair -n")}


def filesystem(guest: Guest, disk: str, kind: str = "ext4") -> None:
    make, check = FILESYSTEMS[kind]
    script = f"""set -e
    {make} /dev/{disk}
    mkdir -p /mnt/{disk}
    mount -t {kind} -o discard /dev/{disk} /mnt/{disk}
    head -c 20000000 /dev/urandom > /mnt/{disk}/one
    cp /mnt/{disk}/one /mnt/{disk}/two
    sync
    echo 3 > /proc/sys/vm/drop_caches
    cmp /mnt/{disk}/one /mnt/{disk}/two
    rm /mnt/{disk}/one
    sha256sum < /mnt/{disk}/two > /tmp/before
    umount /mnt/{disk}
    mount -t {kind} /dev/{disk} /mnt/{disk}
    sha256sum < /mnt/{disk}/two > /tmp/after
    cmp /tmp/before /tmp/after
    umount /mnt/{disk}
    {check} /dev/{disk}
    """
    guest.run(script, 240).checked()


def zeroed(guest: Guest, disk: str) -> None:
    script = f"""set -e
    tr '\\0' x < /dev/zero | dd of=/dev/{disk} bs=1M count=8 iflag=fullblock oflag=direct
    python3 - <<'END'
import fcntl, struct
# linux/fs.h: BLKDISCARD and BLKZEROOUT take a first byte and a length.
with open("/dev/{disk}", "wb") as disk:
    fcntl.ioctl(disk, 0x1277, struct.pack("QQ", 1 << 20, 2 << 20))
    fcntl.ioctl(disk, 0x127f, struct.pack("QQ", 4 << 20, 1 << 20))
END
    blockdev --flushbufs /dev/{disk}
    for mebibyte in 0 1 2 3 4 5 6 7; do dd if=/dev/{disk} bs=1M skip=$mebibyte count=1 iflag=direct 2>/dev/null | tr -d '\\0' | wc -c; done
    """
    output = guest.run(script, 60).checked()
    full, empty = str(1 << 20), "0"
    expect("what is left, MiB by MiB", output.split()[-8:], [full, empty, empty, full, empty, full, full, full])


def flushed(guest: Guest, disks: Disks) -> None:
    guest.run(f"printf flushed | dd of=/dev/{FILE} bs=4096 count=1 seek=100 conv=sync,fsync").checked()
    with open(disks.file, "rb") as file:
        file.seek(100 * 4096)
        expect("the file's bytes there", file.read(7), b"flushed")


def grown(guest: Guest, disks: Disks) -> None:
    guest.run(f"mkfs.ext4 -q -F /dev/{FILE} && mkdir -p /mnt/grown && mount -t ext4 /dev/{FILE} /mnt/grown && echo kept > /mnt/grown/file && sync").checked()
    blocks = int(guest.run("df -k /mnt/grown | tail -1").checked().split()[1])
    disks.daemon.snapctl("namespace", "resize", NQN, "3", "--size", f"{GROWN_MIB}MiB")
    wait_for("the disk has grown", lambda: int(guest.run(f"cat /sys/block/{FILE}/size").checked()) == GROWN_MIB << 11, 20.0)
    guest.run(f"resize2fs /dev/{FILE}").checked()
    room = int(guest.run("df -k /mnt/grown | tail -1").checked().split()[1]) - blocks
    expect_that(f"the file system has {room} KiB more", room > (GROWN_MIB - DISK_MIB) * 900)
    expect("what was there", guest.run("cat /mnt/grown/file").checked().strip(), "kept")
    guest.run(f"umount /mnt/grown && e2fsck -f -n /dev/{FILE}").checked()


def cached(guest: Guest, disks: Disks) -> None:
    kind = f"/sys/block/{FILE}/cache_type"
    written = f"dd if=/dev/urandom of=/tmp/data bs=64k count=16 status=none && dd if=/tmp/data of=/dev/{FILE} bs=64k oflag=direct status=none"
    guest.run(f"echo 'write through' > {kind} && {written}").checked()
    disks.daemon.kill()
    disks.start()
    guest.run(f"dd if=/dev/{FILE} bs=64k iflag=direct count=16 status=none | cmp - /tmp/data && {written}").checked()
    expect("how it works", guest.run(f"cat {kind}").checked().strip(), "write through")
    guest.run(f"echo 'write back' > {kind} && {written}").checked()
    expect("how it works", guest.run(f"cat {kind}").checked().strip(), "write back")


def plugged(guest: Guest, disks: Disks, monitor: qmp.Monitor, ring: str) -> None:
    """Both are the namespace in memory, as one of the first disks is: what is written through each is read through the others."""
    path, controller = disks.folder / HOT, disks.folder / CONTROLLER
    create = ["function", "create", "--nqn", NQN]
    disks.daemon.snapctl(*create, "--name", HOT, "--path", str(path), "--protocol", "vhost-user-blk", "--nsid", "2")
    disks.daemon.snapctl(*create, "--name", CONTROLLER, "--path", str(controller))
    expect("its state", disks.function(HOT)["state"], "FUNCTION_STATE_WAITING")
    socket = {"type": "socket", "data": {"addr": {"type": "unix", "data": {"path": str(path)}}, "server": False, "reconnect-ms": 300}}
    monitor.run("chardev-add", id=HOT, backend=socket)
    packed = {"packed": True} if ring == "packed" else {}
    monitor.run("device_add", driver="vhost-user-blk-pci", id=HOT, bus=PORTS[0], chardev=HOT, **{"num-queues": QUEUES}, **packed)
    guest.run("modprobe nvme").checked()
    monitor.run("device_add", driver="vfio-user-pci", id=CONTROLLER, bus=PORTS[1], socket={"type": "unix", "path": str(controller)})
    wait_for("both are there", lambda: guest.run(f"test -b /dev/{HOT_DISK}").status == 0 and nvme_disk(guest, 2) is not None, PLUG_SECONDS_MAX)
    names = [HOT_DISK, nvme_disk(guest, 2), MEMORY]
    for written in names:
        guest.run(f"dd if=/dev/urandom of=/tmp/data bs=1M count=8 status=none && dd if=/tmp/data of=/dev/{written} bs=64k oflag=direct status=none").checked()
        for read in names:
            guest.run(f"dd if=/dev/{read} bs=64k iflag=direct count=128 status=none | cmp - /tmp/data").checked()
    verified(guest.run(fio(HOT_DISK, "randrw", "--io_size=64m --loops=1"), 180).checked())
    shown = disks.function(HOT)
    expect("its state, its queues", (shown["state"], shown["io_queues"]), ("FUNCTION_STATE_CONNECTED", QUEUES))
    done = shown["io"]
    expect_that(f"what it has done: {done}", int(done["bytes_written"]) >= 8 << 20 and int(done["bytes_read"]) >= 24 << 20)
    expect("errors", int(done.get("errors", 0)), 0)


def chardev_removed(monitor: qmp.Monitor) -> bool:
    """Not while the device that has it is being unplugged."""
    try:
        monitor.run("chardev-remove", id=HOT)
    except qmp.MonitorError:
        return False
    return True


def nvme_disk(guest: Guest, nsid: int) -> str | None:
    """The kernel counts disks as it finds them."""
    script = "cd /sys/class/nvme/nvme0 2>/dev/null && for d in nvme*n*; do echo $(cat $d/nsid) $d; done"
    rows = [line.split() for line in guest.run(script).output.splitlines()]
    # What is there may be a path of the disk: nvme0c0n2 of nvme0n2.
    return next((re.sub(r"c\d+n", "n", row[1]) for row in rows if len(row) == 2 and row[0] == str(nsid)), None)


def unplugged(guest: Guest, disks: Disks, monitor: qmp.Monitor) -> None:
    # QEMU 11.1 ends by an assertion of its own where the socket of vfio-user closes while it sends: the guest gives that one up first.
    guest.run("echo 1 > $(realpath /sys/class/nvme/nvme0/device)/remove").checked()
    disks.daemon.snapctl("function", "delete", CONTROLLER)
    monitor.run("device_del", id=HOT)
    wait_for("it is gone", lambda: guest.run(f"test -b /dev/{HOT_DISK}").status != 0, PLUG_SECONDS_MAX)
    wait_for("QEMU has let go of its socket", lambda: chardev_removed(monitor), PLUG_SECONDS_MAX)
    wait_for("its monitor has gone", lambda: disks.function(HOT)["state"] == "FUNCTION_STATE_WAITING", PLUG_SECONDS_MAX)
    disks.daemon.snapctl("function", "delete", HOT)
    expect_that("its socket is gone", not (disks.folder / HOT).exists())
    names = {function["name"] for function in disks.daemon.asked("function", "list")["functions"]}
    expect("functions", names, {f"pf{number}" for number in range(len(disks.sockets))})
    for disk in (MEMORY, FILE):
        guest.run(f"dd if=/dev/{disk} of=/dev/null bs=1M count=16 iflag=direct status=none").checked()
    disks.daemon.expect_alive()


def begun(guest: Guest, disk: str, seconds: int) -> None:
    """fio in the background; /tmp/end is there when it has ended."""
    job = fio(disk, "randrw", f"--time_based --runtime={seconds} --verify_backlog=64")
    guest.run(f"rm -f /tmp/end; (({job}; echo status $?) > /tmp/fio; touch /tmp/end) & true").checked()
    before = ios(guest, disk)
    wait_for("I/O goes on", lambda: ios(guest, disk) > before + 64, 20.0)


def ios(guest: Guest, disk: str) -> int:
    """Reads and writes that the guest's kernel has done (Documentation/block/stat.rst)."""
    fields = guest.run(f"cat /sys/block/{disk}/stat").checked().split()
    return int(fields[0]) + int(fields[4])


def ended(guest: Guest, seconds: float) -> str:
    """What fio said."""
    guest.run("until test -e /tmp/end; do sleep 0.1; done", seconds).checked()
    return guest.run("cat /tmp/fio").checked()


def paused(guest: Guest, disks: Disks) -> None:
    begun(guest, FILE, 8)
    for _ in range(3):
        disks.daemon.snapctl("namespace", "detach", NQN, "3")
        disks.daemon.snapctl("namespace", "attach", NQN, f"file:{disks.file}", "--nsid", "3")
        before = ios(guest, FILE)
        wait_for("I/O goes on", lambda before=before: ios(guest, FILE) > before + 64, 20.0)
    output = ended(guest, 60.0)
    verified(output)
    expect_that(f"fio ended well: {output[-300:]}", "status 0" in output)


def detached(guest: Guest, disks: Disks) -> None:
    begun(guest, FILE, 60)
    disks.daemon.snapctl("namespace", "detach", NQN, "3")
    output = ended(guest, 40.0)
    expect_that(f"fio was told: {output[-300:]}", "status 0" not in output and "error" in output.lower())
    guest.run(f"dd if=/dev/{VOLUME} of=/dev/null bs=64k iflag=direct", 30).checked()
    expect("what hangs", re.findall("^.*(?:blocked for more|hung).*$", guest.console(), re.MULTILINE), [])
    disks.daemon.expect_alive()


def killed(guest: Guest, disks: Disks, seconds: int, gently: bool = False) -> None:
    job = fio(FILE, "randrw", f"--time_based --runtime={seconds} --verify_backlog=64")
    reader = f"until test -e /tmp/end; do head -c {DATASET.stat().st_size} /dev/{VOLUME} | sha256sum; blockdev --flushbufs /dev/{VOLUME}; done > /tmp/read"
    guest.run(f"rm -f /tmp/end /tmp/fio; ({reader}) & (({job}; echo status $?) > /tmp/fio; touch /tmp/end) & true").checked()
    pause = max(0.5, seconds / (KILLS + 1))
    for _ in range(1 if gently else KILLS):
        time.sleep(pause)
        if gently:
            disks.daemon.stop()
        else:
            disks.daemon.kill()
        disks.start()
    guest.run("until test -e /tmp/end; do sleep 0.1; done", seconds + 120.0).checked()
    output = guest.run("cat /tmp/fio").checked()
    verified(output)
    expect_that(f"fio ended well: {output[-300:]}", "status 0" in output)
    guest.run("sleep 1")
    expected = hashlib.sha256(DATASET.read_bytes()).hexdigest()
    digests = {line.split()[0] for line in guest.run("cat /tmp/read").checked().splitlines()}
    expect("digests of the dataset meanwhile", digests, {expected})
    disks.daemon.expect_alive()


def idle(disks: Disks) -> None:
    before = disks.daemon.processor_seconds()
    time.sleep(5)
    used = disks.daemon.processor_seconds() - before
    expect_that(f"{used:.2f} s of processor in 5 s are below 1 %", used < 0.05)
