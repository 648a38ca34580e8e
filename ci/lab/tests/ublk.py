"""Block devices of the machine that runs the daemon: snap-target inside a guest, whose kernel has ublk_drv.

What the disks hold lies in the guest's memory: a file, a packed dataset, a folder as a disk, and the daemon's own memory.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from lab.guest import Guest, Result
from lab.installed import Kernel

from .report import Report, Unexpected, expect, expect_that, wait_for
from .virtio import begun, digest, ended, filesystem, fio, ios, verified, zeroed
from .volumes import FIXTURES, LBA_BYTES, PackFailed

MEMORY_MIB = 3072
DATASET = FIXTURES / "r50k-u32.bin"
FOLDER = FIXTURES.parent / "dataset"
# mkfs.xfs takes nothing below 300 MiB. Memory is had at once, which takes its time where all is emulated: it has what fio wants.
FILE_MIB, GROWN_MIB, MEM_MIB = 320, 384, 192
REACTORS = 2
# By the number of the device, which is that of the namespace less one.
VOLUME, MEMORY, FILE, FILES = "ublkb0", "ublkb1", "ublkb2", "ublkb3"
BACKING = "/tmp/disk.raw"
NQN = "nqn.2014-08.org.nvmexpress:xio-lab-ublk"
ADMIN, LOG, ALL_LOGS, PID = "/tmp/admin.sock", "/tmp/target.log", "/tmp/target.logs", "/tmp/target.pid"
KILLS = 5
START_SECONDS_MAX, STOP_SECONDS_MAX = 60.0, 40.0


def lay_out(share: Path, snap_target: Path, snapctl: Path, xio: Sequence[str]) -> None:
    """What the guest needs: the daemon and its tool for the guest's own C library, a packed dataset, and a folder as a disk."""
    share.mkdir()
    for program in (snap_target, snapctl):
        # Symbols are most of it, and the guest reads it through a narrow door.
        subprocess.run(["strip", "-o", str(share / program.name), str(program)], check=True)
    shutil.copytree(FOLDER, share / "folder")
    for command in (
        [*xio, "pack", str(DATASET), "--dtype", "u32", "--store-as", "u16+lz4", "-o", str(share / "tokens.xio")],
        [*xio, "pack", str(share / "folder"), "-o", str(share / "folder.xio")],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PackFailed(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr.strip()}")


class Target:
    """The daemon in the guest, with four disks unless something else is said."""

    def __init__(self, guest: Guest, log: str = LOG, pid: str = PID) -> None:
        self.guest, self.log, self.pid = guest, log, pid
        stores = f"/tmp/tokens.xio mem:{MEM_MIB}MiB file:{BACKING} /tmp/folder.xio"
        devices = " ".join(f"--ublk {number},nsid={number + 1}" for number in range(4))
        self.arguments = f"{stores} --nqn {NQN} --admin {ADMIN} --reactors {REACTORS} {devices}"

    def start(self, arguments: str = "") -> None:
        tried = self.try_start(arguments)
        if tried.status != 0:
            raise Unexpected(f"snap-target does not start: {tried.output.strip()}\n{self.said()}")

    def try_start(self, arguments: str = "") -> Result:
        """Status 0 when it is ready; else what it said."""
        script = f"""
            cat {self.log} >>{ALL_LOGS} 2>/dev/null
            : >{self.log}
            ulimit -l unlimited
            snap-target {arguments or self.arguments} >{self.log} 2>&1 &
            echo $! >{self.pid}
            until grep -q ^ready {self.log}; do
                kill -0 $(cat {self.pid}) 2>/dev/null || {{ cat {self.log}; exit 1; }}
                sleep 0.05
            done
        """
        return self.guest.run(script, START_SECONDS_MAX)

    def kill(self) -> None:
        self.guest.run(f"kill -9 $(cat {self.pid}); while kill -0 $(cat {self.pid}) 2>/dev/null; do sleep 0.02; done", 30).checked()

    def stop(self) -> float:
        """SIGTERM; how long it took."""
        started = time.monotonic()
        self.guest.run(f"kill $(cat {self.pid}); while kill -0 $(cat {self.pid}) 2>/dev/null; do sleep 0.02; done", STOP_SECONDS_MAX).checked()
        return time.monotonic() - started

    def snapctl(self, arguments: str) -> str:
        return self.try_snapctl(arguments).checked()

    def try_snapctl(self, arguments: str) -> Result:
        return self.guest.run(f"snapctl --socket {ADMIN} {arguments}", 60)

    def said(self) -> str:
        return self.guest.run(f"cat {self.log}").output

    def processor_seconds(self) -> float:
        """proc(5): utime and stime, in hundredths."""
        fields = self.guest.run(f"cat /proc/$(cat {self.pid})/stat").checked().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


def run(report: Report, guest: Guest, kernel: Kernel) -> None:
    name = kernel.value
    target = Target(guest)
    guest.run(f"cp /share/*.xio /tmp/ && cp /share/snap* /usr/bin/ && truncate -s {FILE_MIB}M {BACKING} && modprobe -a ext4 xfs erofs").checked()
    with report.test(f"{name}: without the driver, and without root, the daemon says what to do"):
        refused(guest, target)
    guest.run("modprobe ublk_drv").checked()
    target.start()
    with report.test(f"{name}: disks are what their namespaces are"):
        seen(guest)
    with report.test(f"{name}: a packed dataset reads as it was"):
        dataset(guest)
    with report.test(f"{name}: a read-only disk takes no write"):
        expect("blockdev says read-only", guest.run(f"blockdev --getro /dev/{VOLUME}").checked().strip(), "1")
        expect_that("dd fails", guest.run(f"dd if=/dev/zero of=/dev/{VOLUME} bs=4k count=1 oflag=direct").status != 0)
    for disk, what in ((MEMORY, "memory"), (FILE, "a file")):
        with report.test(f"{name}: fio writes {what} and reads it back"):
            verified(guest.run(fio(disk, "randrw", "--io_size=64m --loops=1"), 300).checked())
        with report.test(f"{name}: ext4 on {what}: mkfs, files, fsck"):
            filesystem(guest, disk)
        with report.test(f"{name}: discard and write zeroes on {what}"):
            zeroed(guest, disk)
    with report.test(f"{name}: xfs on a file: mkfs, files, repair"):
        filesystem(guest, FILE, "xfs")
    with report.test(f"{name}: what was written and flushed is in the file"):
        guest.run(f"printf flushed | dd of=/dev/{FILE} bs=4096 count=1 seek=100 conv=sync,fsync").checked()
        expect("the file's bytes there", guest.run(f"dd if={BACKING} bs=4096 skip=100 count=1 2>/dev/null | head -c 7").checked(), "flushed")
    with report.test(f"{name}: a folder that xio pack made a disk of is mounted, and each file has its SHA-256"):
        mounted(guest)
    with report.test(f"{name}: a file that grows is a disk that grows, under a mounted ext4" if kernel is Kernel.NEWEST else f"{name}: a resize is refused with the reason, and nothing has changed"):
        grown(guest, target) if kernel is Kernel.NEWEST else not_grown(guest, target)
    with report.test(f"{name}: a namespace that goes and comes again under I/O is a pause"):
        paused(guest, target)
    with report.test(f"{name}: the daemon is killed {KILLS} times while fio runs, and no byte is wrong"):
        killed(guest, target)
    with report.test(f"{name}: the daemon is stopped and started while fio runs"):
        killed(guest, target, gently=True)
    with report.test(f"{name}: the dataset reads as it was afterwards"):
        dataset(guest)
    with report.test(f"{name}: an idle daemon sleeps"):
        idle(guest, target)
    with report.test(f"{name}: a daemon with mounted disks ends in time; a file's disk goes on with the next, memory's is gone"):
        ended_while_mounted(guest, target)
    with report.test(f"{name}: a disk of 512-byte blocks; a store that takes 24 s holds no stop up, and the next daemon does what was under way"):
        slow(guest)
    with report.test(f"{name}: snapctl makes a disk while the daemon runs; it is kept over kill -9, and goes when it is deleted"):
        made(guest)
    with report.test(f"{name}: another file at the same path is another disk, and is not put under who uses the first"):
        replaced(guest)
    with report.test(f"{name}: a number that is taken is refused, whoever has it, and is free when it is deleted"):
        taken(guest, target)
    with report.test(f"{name}: the guest's kernel has nothing to complain of"):
        complain(guest)
    with report.test(f"{name}: a namespace that is detached under I/O goes: errors, no hang, and the other disks go on"):
        detached(guest, target)
    with report.test(f"{name}: disks that were left are deleted, and are made anew"):
        deleted(guest, target)
    figures(guest, target, name)
    with report.test(f"{name}: no panic in all that"):
        expect("lines", re.findall("^.*panicked.*$", guest.run(f"cat {ALL_LOGS} {LOG}").output, re.MULTILINE), [])


def refused(guest: Guest, target: Target) -> None:
    arguments = "mem:16MiB --ublk 9"
    tried = target.try_start(arguments)
    expect_that(f"no driver: {tried.output}", tried.status != 0 and "modprobe ublk_drv" in tried.output and "ublk-control" in tried.output)
    config = f"""
[admin]
socket = "{ADMIN}"
[[listener]]
address = "127.0.0.1:4420"
[[ublk]]
number = 9
subsystem = "{NQN}"
[[subsystem]]
nqn = "{NQN}"
allow-any-host = true
[[subsystem.namespace]]
store = "mem:16MiB"
"""
    guest.run(f"cat > /tmp/target.toml <<'END'\n{config}END").checked()
    target.start("--config /tmp/target.toml")
    # Its exit status is 1 where something is wrong.
    health = target.try_snapctl("target health").output
    expect_that(f"health names it: {health}", "/dev/ublkb9" in health and "modprobe ublk_drv" in health)
    target.stop()
    tried = guest.run("snapctl doctor --ublk", 30)
    expect_that(f"doctor misses it: {tried.output}", tried.status != 0 and "modprobe ublk_drv" in tried.output)
    guest.run("modprobe ublk_drv").checked()
    nobody = f"python3 -c 'import os, sys; os.setgid(65534); os.setuid(65534); os.execvp(sys.argv[1], sys.argv[1:])' snap-target {arguments} 2>&1"
    tried = guest.run(f"chmod 666 /dev/ublk-control; {nobody}", 30)
    expect_that(f"no root: {tried.output}", tried.status != 0 and "CAP_SYS_ADMIN" in tried.output)
    tried = guest.run(f"chmod 600 /dev/ublk-control; {nobody}", 30)
    expect_that(f"no root: {tried.output}", tried.status != 0 and "start the daemon as root" in tried.output)
    tried = guest.run("snap-target --delete-ublk 9 2>&1", 30)
    expect_that(f"no such device: {tried.output}", tried.status != 0 and "/dev/ublkb9" in tried.output)
    expect("doctor's line", re.findall("^ok +ublk .*driver is there.*$", guest.run("snapctl doctor --ublk", 30).output, re.MULTILINE) != [], True)
    guest.run("rmmod ublk_drv").checked()


def attribute(guest: Guest, disk: str, path: str) -> str:
    return guest.run(f"cat /sys/block/{disk}/{path}").checked().strip()


def seen(guest: Guest) -> None:
    for disk, mebibytes in ((MEMORY, MEM_MIB), (FILE, FILE_MIB)):
        expect(f"sectors of {disk}", int(attribute(guest, disk, "size")), mebibytes << 11)
        expect(f"{disk} is read-only", attribute(guest, disk, "ro"), "0")
        expect(f"bytes that {disk} discards at once", int(attribute(guest, disk, "queue/discard_max_bytes")), LBA_BYTES << 16)
        expect(f"bytes that {disk} zeroes at once", int(attribute(guest, disk, "queue/write_zeroes_max_bytes")), LBA_BYTES << 16)
        expect(f"granularity of discards of {disk}", int(attribute(guest, disk, "queue/discard_granularity")), LBA_BYTES)
    whole = -(-DATASET.stat().st_size // LBA_BYTES) * LBA_BYTES
    expect("bytes of the dataset's disk", int(attribute(guest, VOLUME, "size")) * 512, whole)
    for disk in (VOLUME, FILES):
        expect(f"{disk} is read-only", attribute(guest, disk, "ro"), "1")
        expect(f"bytes that {disk} discards", int(attribute(guest, disk, "queue/discard_max_bytes")), 0)
    for disk in (VOLUME, MEMORY, FILE, FILES):
        expect(f"block size of {disk}", attribute(guest, disk, "queue/logical_block_size"), str(LBA_BYTES))
        expect(f"cache of {disk}", attribute(guest, disk, "queue/write_cache"), "write back")
        expect(f"FUA of {disk}", attribute(guest, disk, "queue/fua"), "1")
        expect(f"KiB of a request of {disk}", attribute(guest, disk, "queue/max_hw_sectors_kb"), "1024")
        expect(f"queues of {disk}", len(guest.run(f"ls /sys/block/{disk}/mq").checked().split()), REACTORS)


def dataset(guest: Guest) -> None:
    content = DATASET.read_bytes()
    expect("its digest", digest(guest, VOLUME, len(content)), hashlib.sha256(content).hexdigest())


def mounted(guest: Guest) -> None:
    def digests(folder: str) -> str:
        return guest.run(f"cd {folder} && find . -type f -not -path './.xio/*' | sort | xargs sha256sum", 120).checked()

    guest.run(f"mkdir -p /mnt/files && mount -t erofs -o ro /dev/{FILES} /mnt/files").checked()
    expect("files and their digests", digests("/mnt/files"), digests("/share/folder"))
    guest.run("umount /mnt/files").checked()


def grown(guest: Guest, target: Target) -> None:
    guest.run(f"mkfs.ext4 -q -F /dev/{FILE} && mkdir -p /mnt/grown && mount -t ext4 /dev/{FILE} /mnt/grown && echo kept > /mnt/grown/file && sync").checked()
    blocks = int(guest.run("df -k /mnt/grown | tail -1").checked().split()[1])
    target.snapctl(f"namespace resize {NQN} 3 --size {GROWN_MIB}MiB")
    wait_for("the disk has grown", lambda: int(attribute(guest, FILE, "size")) == GROWN_MIB << 11, 20.0)
    guest.run(f"resize2fs /dev/{FILE}").checked()
    room = int(guest.run("df -k /mnt/grown | tail -1").checked().split()[1]) - blocks
    expect_that(f"the file system has {room} KiB more", room > (GROWN_MIB - FILE_MIB) * 900)
    expect("what was there", guest.run("cat /mnt/grown/file").checked().strip(), "kept")
    guest.run(f"umount /mnt/grown && e2fsck -f -n /dev/{FILE}").checked()


def not_grown(guest: Guest, target: Target) -> None:
    tried = target.try_snapctl(f"namespace resize {NQN} 3 --size {GROWN_MIB}MiB")
    expect_that(f"refused with the reason: {tried.output}", tried.status != 0 and "Linux 6.16" in tried.output and "/dev/ublkb2" in tried.output)
    expect("sectors", int(attribute(guest, FILE, "size")), FILE_MIB << 11)
    expect("bytes of the file", int(guest.run(f"stat -c %s {BACKING}").checked()), FILE_MIB << 20)


def paused(guest: Guest, target: Target) -> None:
    begun(guest, FILE, 30)
    for _ in range(3):
        # At once: to start a program takes seconds in an emulated guest, and requests wait for 5 s.
        attach = f"snapctl --socket {ADMIN} namespace attach {NQN} file:{BACKING} --nsid 3"
        guest.run(f"snapctl --socket {ADMIN} namespace detach {NQN} 3 & until {attach}; do :; done; wait", 60).checked()
        before = ios(guest, FILE)
        wait_for("I/O goes on", lambda before=before: ios(guest, FILE) > before + 64, 20.0)
    output = ended(guest, 90.0)
    verified(output)
    expect_that(f"fio ended well: {output[-300:]}", "status 0" in output)


def killed(guest: Guest, target: Target, gently: bool = False) -> None:
    # One fio after another, until it is enough: where all is emulated, nobody knows how long a start takes.
    job = fio(FILE, "randrw", "--time_based --runtime=5 --verify_backlog=64")
    writer = f"rm -f /tmp/fio /tmp/end; until test -e /tmp/enough; do {job} >> /tmp/fio 2>&1 || {{ echo failed >> /tmp/fio; break; }}; done; touch /tmp/end"
    reader = f"until test -e /tmp/end; do head -c {DATASET.stat().st_size} /dev/{VOLUME} | sha256sum; blockdev --flushbufs /dev/{VOLUME}; done > /tmp/read; touch /tmp/read.end"
    guest.run(f"rm -f /tmp/enough /tmp/end /tmp/read.end; ({writer}) & ({reader}) & true").checked()
    for _ in range(1 if gently else KILLS):
        going_on(guest)
        if gently:
            target.stop()
        else:
            target.kill()
        target.start()
        expect_that(f"the disks were taken over: {target.said()[-600:]}", f"/dev/{FILE} is taken over" in target.said())
    going_on(guest)
    guest.run("touch /tmp/enough; until test -e /tmp/end && test -e /tmp/read.end; do sleep 0.1; done", 120.0).checked()
    output = guest.run("cat /tmp/fio").checked()
    verified(output)
    expect_that(f"fio ended well: {output[-300:]}", "failed" not in output)
    expected = hashlib.sha256(DATASET.read_bytes()).hexdigest()
    digests = {line.split()[0] for line in guest.run("cat /tmp/read").checked().splitlines()}
    expect("digests of the dataset meanwhile", digests, {expected})


def going_on(guest: Guest) -> None:
    before = ios(guest, FILE)
    wait_for("I/O goes on", lambda: ios(guest, FILE) > before + 64, 60.0)


def idle(guest: Guest, target: Target) -> None:
    """Against the same daemon without block devices: under emulation each of its timers costs ten times what it would."""

    def used() -> float:
        guest.run("sync; sleep 1")
        before = target.processor_seconds()
        guest.run("sleep 10")
        return target.processor_seconds() - before

    with_disks = used()
    target.stop()
    target.start(target.arguments.partition(" --ublk")[0])
    without = used()
    target.stop()
    target.start()
    print(f"        {with_disks:.2f} s of processor in 10 s with four idle disks, {without:.2f} s without", flush=True)
    expect_that(f"{with_disks:.2f} s are not more than {without:.2f} s and 1 % of a processor", with_disks <= without + 0.1)


def ended_while_mounted(guest: Guest, target: Target) -> None:
    guest.run(f"""set -e
        for disk in {FILE} {MEMORY}; do
            mkfs.ext4 -q -F /dev/$disk
            mkdir -p /mnt/$disk
            mount -t ext4 /dev/$disk /mnt/$disk
            head -c 3000000 /dev/urandom > /mnt/$disk/file
            sync
            sha256sum < /mnt/$disk/file > /tmp/$disk.sum
        done
    """, 120).checked()
    took = target.stop()
    expect_that(f"it ended in {took:.1f} s", took < 20)
    expect_that(f"it says what stays: {target.said()[-600:]}", f"/dev/{FILE} stays" in target.said() and f"/dev/{MEMORY} is deleted" in target.said())
    expect_that("memory's disk is gone", guest.run(f"test -e /sys/block/{MEMORY}").status != 0)
    # Unmounted first, or its number is not free.
    guest.run(f"umount /mnt/{MEMORY}", 60)
    target.start()
    script = f"echo 3 > /proc/sys/vm/drop_caches; sha256sum < /mnt/{FILE}/file | cmp - /tmp/{FILE}.sum; umount /mnt/{FILE} && e2fsck -f -n /dev/{FILE}"
    guest.run(script, 60).checked()


def slow(guest: Guest) -> None:
    """A daemon besides, with the same file behind a slow line and without."""
    disk, backing = "ublkb7", "/tmp/small.raw"
    other = Target(guest, log="/tmp/other.log", pid="/tmp/other.pid")
    other.arguments = f"file:{backing} --lba 512 --listen 127.0.0.1:4422 --nqn {NQN}-other --ublk 7"
    guest.run(f"truncate -s 16M {backing}").checked()
    other.start()
    expect("block size", attribute(guest, disk, "queue/logical_block_size"), "512")
    job = f"fio --name=small --filename=/dev/{disk} --rw=randrw --bssplit=512/40:1536/30:9k/30 --direct=1 --ioengine=libaio --iodepth=8 --verify=crc32c --verify_fatal=1 --size=8m --minimal 2>&1"
    verified(guest.run(job, 120).checked())
    guest.run(f"printf kept | dd of=/dev/{disk} bs=512 count=1 seek=9 conv=sync,fsync").checked()
    other.stop()
    other.start(f"{other.arguments} --limit 1MiB/s,latency=10s")
    guest.run(f"(dd if=/dev/{disk} of=/tmp/late bs=14M count=1 iflag=direct; echo $? > /tmp/late.status) > /dev/null 2>&1 & true").checked()
    guest.run("sleep 1")
    took = other.stop()
    expect_that(f"it ended in {took:.1f} s, before its store did", took < 18)
    other.start()
    guest.run("until test -e /tmp/late.status; do sleep 0.1; done", 60).checked()
    expect("what dd says", guest.run("cat /tmp/late.status").checked().strip(), "0")
    expect("what it read", guest.run("tail -c +4609 /tmp/late | head -c 4").checked(), "kept")
    other.stop()
    guest.run("snap-target --delete-ublk 7", 60).checked()


def besides(guest: Guest, devices: str) -> tuple[Target, str]:
    """A daemon besides, of 4,096 blocks of a file, with a state folder; and its snapctl."""
    other = Target(guest, log="/tmp/other.log", pid="/tmp/other.pid")
    other.arguments = f"file:/tmp/small.raw --state /tmp/other.state --admin /tmp/other.sock --listen 127.0.0.1:4422 --nqn {NQN}-other {devices}"
    guest.run("rm -rf /tmp/other.state /tmp/small.raw; mkdir /tmp/other.state; truncate -s 16M /tmp/small.raw").checked()
    other.start()
    return other, "snapctl --socket /tmp/other.sock"


def made(guest: Guest) -> None:
    other, snapctl = besides(guest, "")
    create = f"{snapctl} function create --nqn {NQN}-other --protocol ublk --nsid 1"
    # The lowest number that nobody has, in this daemon or another.
    guest.run(f"{create} --name pf3", 60).checked()
    expect("sectors", int(attribute(guest, "ublkb4", "size")), 16 << 11)
    guest.run(f"{create} --name pf4 --number 9", 60).checked()
    expect("sectors", int(attribute(guest, "ublkb9", "size")), 16 << 11)
    shown = guest.run(f"{snapctl} function show pf3", 60).checked()
    expect_that(f"it is there, and has no doorbells: {shown}", "/dev/ublkb4" in shown and "connected" in shown and "polling" not in shown and "host" not in shown)
    of_kernel = len(guest.run("ls /sys/block/ublkb4/mq").checked().split())
    expect("its queues", next(line.split()[-1] for line in shown.splitlines() if line.startswith("I/O queues")), str(of_kernel))
    for what, why in (("pf5 --number 9", "/dev/ublkb9"), ("pf5 --number 2", "/dev/ublkb2"), ("pf3 --number 10", "pf3")):
        tried = guest.run(f"{create} --name {what}", 60)
        expect_that(f"{what} is refused: {tried.output}", tried.status != 0 and why in tried.output)
    guest.run("printf kept | dd of=/dev/ublkb4 bs=4096 count=1 seek=7 conv=sync,fsync", 60).checked()
    other.kill()
    other.start()
    expect_that(f"both were taken over: {other.said()[-600:]}", all(f"/dev/ublkb{number} is taken over" in other.said() for number in (4, 9)))
    listed = guest.run(f"{snapctl} function list", 60).checked()
    expect_that(f"both are listed: {listed}", "/dev/ublkb4" in listed and "/dev/ublkb9" in listed)
    expect("what was written by the one, read by the other", guest.run("dd if=/dev/ublkb9 bs=4096 skip=7 count=1 2>/dev/null | head -c 4", 60).checked(), "kept")
    for name in ("pf3", "pf4"):
        guest.run(f"{snapctl} function delete {name}", 60).checked()
    expect("what is left of them", guest.run("ls /sys/block | grep -c 'ublkb[49]' || true").checked().strip(), "0")
    other.stop()


def replaced(guest: Guest) -> None:
    other, _ = besides(guest, "--ublk 7")
    other.kill()
    guest.run("cp /tmp/small.raw /tmp/copy.raw && mv /tmp/small.raw /tmp/first.raw && mv /tmp/copy.raw /tmp/small.raw").checked()
    tried = other.try_start()
    expect_that(f"another disk: {tried.output[-600:]}", tried.status != 0 and "presented another disk" in tried.output)
    guest.run("mv /tmp/first.raw /tmp/small.raw").checked()
    other.start()
    expect_that(f"the first is taken over: {other.said()[-600:]}", "/dev/ublkb7 is taken over" in other.said())
    other.stop()
    guest.run("snap-target --delete-ublk 7", 60).checked()


def taken(guest: Guest, target: Target) -> None:
    other = f"null:16MiB --listen 127.0.0.1:4421 --nqn {NQN} --ublk"
    tried = guest.run(f"snap-target {other} 2 2>&1", 60)
    expect_that(f"another disk's: {tried.output}", tried.status != 0 and "/dev/ublkb2 is there already" in tried.output)
    tried = guest.run(f"snap-target /tmp/tokens.xio --listen 127.0.0.1:4421 --nqn {NQN} --ublk 0 2>&1", 60)
    expect_that(f"a running process': {tried.output}", tried.status != 0 and "is served by process" in tried.output)
    tried = guest.run("snap-target --delete-ublk 0 2>&1", 60)
    expect_that(f"it is not deleted: {tried.output}", tried.status != 0 and "is served by process" in tried.output)
    dataset(guest)
    target.kill()
    tried = guest.run(f"snap-target {other} 2 2>&1", 60)
    expect_that(f"a dead process': {tried.output}", tried.status != 0 and "--delete-ublk 2" in tried.output)
    tried = guest.run(f"timeout 30 snap-target /tmp/tokens.xio --listen 127.0.0.1:4421 --nqn {NQN}-other --ublk 0 2>&1", 60)
    expect_that(f"the same content of another subsystem: {tried.output}", tried.status == 1 and "/dev/ublkb0 is there already" in tried.output)
    expect("memory's is deleted", guest.run("snap-target --delete-ublk 1", 60).checked().strip(), "/dev/ublkb1 is deleted")
    target.start()
    dataset(guest)


def complain(guest: Guest) -> None:
    lines = re.findall(r"^.*(?:I/O error|BUG|WARNING|Oops|hung|blocked for more).*$", guest.console(), re.MULTILINE)
    # The write that a read-only disk refuses, and the disk of memory that went with its file system.
    expect("its complaints", [line for line in lines if VOLUME not in line and MEMORY not in line], [])


def detached(guest: Guest, target: Target) -> None:
    begun(guest, MEMORY, 60)
    target.snapctl(f"namespace detach {NQN} 2")
    output = ended(guest, 60.0)
    expect_that(f"fio was told: {output[-300:]}", "status 0" not in output and "error" in output.lower())
    guest.run(f"dd if=/dev/{FILE} of=/dev/null bs=1M count=64 iflag=direct", 30).checked()
    expect("what hangs", re.findall("^.*(?:blocked for more|hung).*$", guest.console(), re.MULTILINE), [])


def deleted(guest: Guest, target: Target) -> None:
    target.stop()
    guest.run("for number in 0 2 3; do snap-target --delete-ublk $number || exit 1; done", 60).checked()
    expect("what is left", guest.run("ls /sys/block /dev | grep -c ublk[bc] || true").checked().strip(), "0")
    target.start()
    dataset(guest)


def figures(guest: Guest, target: Target, name: str) -> None:
    """Printed, and not judged: under emulation only ratios say something."""
    guest.run(f"modprobe loop; losetup /dev/loop0 {BACKING} --direct-io=on || losetup /dev/loop0 {BACKING}")
    rows = []
    for disk in (MEMORY, FILE, "loop0"):
        row = []
        for how, depth in (("randread", 1), ("randread", 32), ("randwrite", 32)):
            job = f"fio --name=f --filename=/dev/{disk} --rw={how} --bs=4k --iodepth={depth} --direct=1 --ioengine=libaio --runtime=5 --time_based --size=64m --minimal"
            fields = guest.run(job, 60).checked().split(";")
            # fio's terse format, version 3: IOPS of reads and of writes.
            row.append(int(fields[7]) + int(fields[48]))
        rows.append((disk, row))
    guest.run("losetup -d /dev/loop0")
    for disk, row in rows:
        print(f"        {name}: {disk}: IOPS of 4 KiB: read qd1 {row[0]}, qd32 {row[1]}, write qd32 {row[2]}", flush=True)
