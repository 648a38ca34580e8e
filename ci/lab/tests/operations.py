"""What an operator does while a Linux host has the disk: each change is seen by the host at once, and nothing that it does is lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from lab.guest import Guest, Result

from .operated import NQN, OperatedTarget
from .report import Report, Unexpected, expect, expect_that, wait_for

MIB = 1 << 20
SEEN_SECONDS_MAX = 20.0
IOS_SEEN = 64
FIO_SECONDS = 12


@dataclass
class OperatedHost:
    """A stock Linux host in a guest of its own, under one name."""

    guest: Guest
    target: OperatedTarget
    hostnqn: str
    hostid: str

    def sh(self, script: str, timeout_s: float = 120.0) -> Result:
        return self.guest.run(script, timeout_s, watch=self.target.expect_alive)

    def do(self, script: str, timeout_s: float = 120.0) -> str:
        return self.sh(script, timeout_s).checked()

    def connect(self, *options: str) -> None:
        self.do(
            f"timeout 30 nvme connect -t tcp -a 10.0.2.2 -s {self.target.port} -n {NQN} --hostnqn={self.hostnqn} --hostid={self.hostid} "
            f"--nr-io-queues=4 --keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=-1 {' '.join(options)}"
        )

    def device(self, nsid: int) -> str | None:
        """The block device of a namespace, where the host has it."""
        printed = self.sh("cd /sys/block && grep -H . nvme*n*/nsid").output
        found = dict(re.findall(r"^(nvme\d+n\d+)/nsid:(\d+)$", printed, re.MULTILINE))
        names = [name for name, number in found.items() if int(number) == nsid]
        return f"/dev/{names[0]}" if names else None

    def wait_device(self, nsid: int) -> str:
        self.wait_for(f"namespace {nsid} appears", lambda: self.device(nsid) is not None)
        device = self.device(nsid)
        assert device is not None
        return device

    def size_bytes(self, device: str) -> int:
        return int(self.do(f"blockdev --getsize64 {device}"))

    def state(self) -> str:
        """Of its controller, also while the target is away."""
        return self.guest.run("cat /sys/class/nvme/nvme*/state", 60).checked().strip()

    def wait_for(self, what: str, holds: Callable[[], bool], seconds_max: float = SEEN_SECONDS_MAX) -> None:
        wait_for(what, holds, seconds_max)

    def wait_for_io(self, device: str) -> None:
        """Until the kernel has done more reads and writes of a disk than fit its queues: something is under way."""
        before = self._ios(device)
        self.wait_for(f"I/O of {device} goes on", lambda: self._ios(device) > before + IOS_SEEN, 60)

    def _ios(self, device: str) -> int:
        # Documentation/block/stat.rst: the first field counts reads, the fifth writes.
        fields = self.do(f"cat /sys/block/{device[5:]}/stat").split()
        return int(fields[0]) + int(fields[4])

    def complaints(self) -> list[str]:
        pattern = "I/O error|critical [a-z]+ error|protection error|digest error|rejecting I/O|identifiers changed|call trace|hung task"
        return self.sh(f"dmesg | grep -iE '{pattern}'").output.splitlines()

    def begin_verify(self, device: str, name: str, seconds: int = FIO_SECONDS) -> None:
        """fio writes blocks of mixed sizes and reads them back, with a CRC in each, in the background."""
        # Linux's nvme-tcp sends without MSG_NOSIGNAL, in the context of whoever submits: one who does so between a reset and the kernel's own
        # recovery gets a SIGPIPE, of which fio dies. The target ends connections without a reset; a daemon that is killed does not.
        self.do(
            f"trap '' PIPE; fio --name={name} --filename={device} --rw=randrw --bssplit=4k/40:8k/20:16k/20:64k/10:4k-128k/10 --direct=1 --ioengine=libaio --iodepth=16 "
            f"--size=48m --verify=crc32c --verify_backlog=64 --verify_fatal=1 --time_based --runtime={seconds} --output=/tmp/{name}.out >/tmp/{name}.err 2>&1 &\n"
            f"echo $! >/tmp/{name}.pid"
        )

    def end_verify(self, name: str) -> None:
        """It has ended without an error and without a wrong byte."""
        gone = f"! kill -0 $(cat /tmp/{name}.pid) 2>/dev/null"
        self.wait_for(f"fio {name} ends", lambda: self.sh(gone).status == 0, FIO_SECONDS + 90.0)
        output = self.sh(f"cat /tmp/{name}.out /tmp/{name}.err").output
        expect_that(f"fio {name} ended well: {output[-1500:]}", re.search(r"err= 0", output) is not None and "verify:" not in output)


def test_attach(report: Report, host: OperatedHost) -> None:
    with report.test("a namespace that is attached appears at a connected host, with its size and UUID"):
        host.target.snapctl("namespace", "attach", NQN, "mem:64MiB", "--nsid", "1")
        device = host.wait_device(1)
        expect("size", host.size_bytes(device), 64 * MIB)
        shown = host.target.asked("namespace", "show", NQN, "1")
        uuid = shown.get("namespace", shown)["uuid"]
        expect("uuid", host.do(f"cat /sys/block/{device[5:]}/uuid").strip(), uuid)
    with report.test("a file and a second RAM disk appear as well, and each has its own device"):
        disk = host.target.folder / "disk.raw"
        with disk.open("wb") as file:
            file.truncate(320 * MIB)
        host.target.snapctl("namespace", "attach", NQN, f"file:{disk}", "--nsid", "2")
        host.target.snapctl("namespace", "attach", NQN, "mem:48MiB", "--nsid", "3", "--lba", "512")
        device = host.wait_device(2)
        expect("size of the file", host.size_bytes(device), 320 * MIB)
        # The host connected before there was a disk to write to: without a cache in what it read then it would never flush this one.
        expect("write cache of the file", host.do(f"cat /sys/block/{device[5:]}/queue/write_cache").strip(), "write back")
        expect("FUA of the file", host.do(f"cat /sys/block/{device[5:]}/queue/fua").strip(), "1")
        device = host.wait_device(3)
        expect("block size", host.do(f"blockdev --getss {device}").strip(), "512")
    with report.test("what cannot be attached says why, and changes nothing"):
        refused = host.target.try_snapctl("namespace", "attach", NQN, "mem:1MiB", "--nsid", "1")
        expect("exit status", refused.returncode, 5)
        expect_that(f"it says what is in the way: {refused.stderr!r}", "1" in refused.stderr and refused.stderr.count("\n") == 1)
        missing = host.target.try_snapctl("namespace", "attach", NQN, "file:/nowhere/disk.raw")
        expect("exit status", missing.returncode, 5)
        expect_that(f"it names the file: {missing.stderr!r}", "/nowhere/disk.raw" in missing.stderr)


def test_filesystems(report: Report, host: OperatedHost) -> None:
    for kind, make, check in [
        ("ext4", "mkfs.ext4 -q -F", "e2fsck -f -n"),
        ("xfs", "mkfs.xfs -q -f", "xfs_repair -n"),
    ]:
        with report.test(f"{kind}: made, filled, read back after a remount, checked"):
            nsid = 1 if kind == "ext4" else 2
            device = host.wait_device(nsid)
            host.do(f"{make} {device} >/tmp/mkfs.log 2>&1 || {{ cat /tmp/mkfs.log; false; }}", 180)
            host.do(f"mkdir -p /mnt/{kind} && mount -t {kind} {device} /mnt/{kind}")
            host.do(f"cp -a /usr/lib/python3* /mnt/{kind}/ && cd /mnt/{kind} && find . -type f -exec sha256sum {{}} + | sort >/tmp/{kind}.before", 300)
            host.do(f"sync && umount /mnt/{kind} && echo 3 >/proc/sys/vm/drop_caches && mount -t {kind} {device} /mnt/{kind}")
            host.do(f"cd /mnt/{kind} && find . -type f -exec sha256sum {{}} + | sort | diff - /tmp/{kind}.before >/tmp/diff || {{ head -5 /tmp/diff; false; }}", 300)
            expect_that("files were compared", int(host.do(f"wc -l </tmp/{kind}.before")) > 100)
            host.do(f"umount /mnt/{kind} && {check} {device} >/tmp/check.log 2>&1 || {{ cat /tmp/check.log; false; }}", 180)


def test_resize(report: Report, host: OperatedHost) -> None:
    with report.test("a file that grows is a disk that grows, under a mounted ext4, which takes the room"):
        device = host.wait_device(2)
        host.do(f"mkfs.ext4 -q -F {device} && mount -t ext4 {device} /mnt && echo kept >/mnt/file && sync")
        host.target.snapctl("namespace", "resize", NQN, "2", "--size", "512MiB")
        host.wait_for("the device is larger", lambda: host.size_bytes(device) == 512 * MIB)
        blocks = int(host.do("df -k /mnt | tail -1").split()[1])
        host.do(f"resize2fs {device} >/tmp/resize.log 2>&1 || {{ cat /tmp/resize.log; false; }}")
        expect_that("the file system is larger", int(host.do("df -k /mnt | tail -1").split()[1]) > blocks + 150 * 1024)
        expect("what was there", host.do("cat /mnt/file").strip(), "kept")
        host.do(f"umount /mnt && e2fsck -f -n {device}")
    with report.test("a disk grows and shrinks under I/O, another comes and goes beside it, and every byte is right"):
        disk = host.target.folder / "grow.raw"
        with disk.open("wb") as file:
            file.truncate(64 * MIB)
        host.target.snapctl("namespace", "attach", NQN, f"file:{disk}", "--nsid", "4", "--lba", "512")
        device = host.wait_device(4)
        # Each size leaves the 48 MiB that are written.
        host.begin_verify(device, "grow", 2 * FIO_SECONDS)
        for mib in (128, 96, 192):
            host.wait_for_io(device)
            host.target.snapctl("namespace", "resize", NQN, "4", "--size", f"{mib}MiB", "--force")
            host.wait_for(f"the disk has {mib} MiB", lambda size=mib * MIB: host.size_bytes(device) == size)
            host.target.snapctl("namespace", "attach", NQN, "mem:1MiB", "--nsid", "5")
            host.wait_device(5)
            host.target.snapctl("namespace", "detach", NQN, "5")
            host.wait_for("it is gone", lambda: host.device(5) is None)
        refused = host.target.try_snapctl("namespace", "resize", NQN, "4", "--size", "64MiB")
        expect("a smaller size without --force: exit status", refused.returncode, 5)
        host.wait_for_io(device)
        host.end_verify("grow")
        host.target.snapctl("namespace", "detach", NQN, "4")


def test_reset_and_reconnect(report: Report, host: OperatedHost) -> None:
    device = host.wait_device(1)
    with report.test("nvme reset under I/O: no error, every byte right"):
        host.begin_verify(device, "reset")
        for _ in range(3):
            host.wait_for_io(device)
            host.do("nvme reset /dev/nvme0", 60)
            host.wait_for("the controller is live", lambda: host.state() == "live")
        host.end_verify("reset")
    with report.test("snapctl controller end under I/O: the host comes back by itself, every byte right"):
        host.begin_verify(device, "reconnect")
        for _ in range(2):
            host.wait_for_io(device)
            for controller in host.target.asked("controller", "list")["controllers"]:
                host.target.snapctl("controller", "end", str(controller["cntlid"]))
            host.wait_for("the controller is live again", lambda: host.state() == "live")
        host.end_verify("reconnect")
    with report.test("the kernel had nothing to complain about"):
        # On a slow machine the kernel still looks for partitions of the disk that comes and goes, when that goes.
        complaints = [line for line in host.complaints() if not re.search(r"nvme0(c0)?n5\b", line)]
        # A trace without the lines around it says nothing.
        expect_that(f"no complaints: {host.do('dmesg | tail -200')}", not complaints)


def test_detach_under_io(report: Report, host: OperatedHost) -> None:
    with report.test("a namespace that is detached under I/O goes: errors, no hang, and the others go on"):
        device, other = host.wait_device(3), host.wait_device(1)
        host.begin_verify(other, "other")
        host.begin_verify(device, "gone", 30)
        host.wait_for_io(device)
        host.target.snapctl("namespace", "detach", NQN, "3")
        host.wait_for("the device is gone", lambda: host.device(3) is None)
        try:
            host.wait_for("its user is told", lambda: host.sh("! kill -0 $(cat /tmp/gone.pid) 2>/dev/null").status == 0, 60)
        except Unexpected as hanging:
            raise Unexpected(f"{hanging}; {host.do('cat /tmp/gone.out /tmp/gone.err; dmesg | tail -15; cat /proc/$(cat /tmp/gone.pid)/stack')}") from None
        host.end_verify("other")
        expect("controller", host.state(), "live")
    with report.test("the same number comes back as another disk"):
        host.target.snapctl("namespace", "attach", NQN, "mem:32MiB", "--nsid", "3")
        expect("size", host.size_bytes(host.wait_device(3)), 32 * MIB)


def test_two_hosts(report: Report, one: OperatedHost, two: OperatedHost) -> None:
    with report.test("a host that is not on the list is refused, and let in once it is"):
        refused = two.sh(f"timeout 30 nvme connect -t tcp -a 10.0.2.2 -s {two.target.port} -n {NQN} --hostnqn={two.hostnqn} --hostid={two.hostid}")
        expect_that(f"the second host is refused: {refused.output!r}", refused.status != 0)
        one.target.snapctl("host", "allow", NQN, two.hostnqn)
        two.connect()
        two.wait_device(1)
    with report.test("two hosts write one shared namespace and see each other's blocks"):
        first, second = one.wait_device(1), two.wait_device(1)
        pattern = "python3 -c \"import sys; sys.stdout.buffer.write(bytes([{fill}]) * (1 << 20))\" | dd of={device} bs=1M seek={at} oflag=direct conv=notrunc iflag=fullblock status=none"
        one.do(pattern.format(fill=17, device=first, at=0))
        two.do(pattern.format(fill=34, device=second, at=1))
        digest = "echo 3 >/proc/sys/vm/drop_caches; dd if={device} bs=1M count=2 iflag=direct status=none | sha256sum"
        expect("what both see", one.do(digest.format(device=first)), two.do(digest.format(device=second)))
        halves = one.do(f"dd if={first} bs=1M count=2 iflag=direct status=none | od -An -tu1 -v -w4096 | sort | uniq -c | awk '{{print $1, $2, $NF}}'")
        expect("256 blocks of each", sorted(halves.split("\n"))[-2:], ["256 17 17", "256 34 34"])
    with report.test("two hosts verify their halves of it at the same time, under mixed block sizes"):
        one.begin_verify(one.wait_device(1), "shared")
        two.do(f"fio --name=high --filename={two.wait_device(1)} --offset=48m --size=16m --rw=randwrite --bs=4k --direct=1 --iodepth=8 --ioengine=libaio "
               "--verify=crc32c --do_verify=1", 120)
        one.end_verify("shared")
    with report.test("a namespace shown to one host alone is not there for the other"):
        one.target.snapctl("namespace", "attach", NQN, "mem:16MiB", "--nsid", "9", "--host", two.hostnqn)
        two.wait_device(9)
        expect("at the first host", one.device(9), None)
        one.target.snapctl("namespace", "visibility", NQN, "9", "--host", one.hostnqn)
        one.wait_device(9)
        two.wait_for("it is gone at the second", lambda: two.device(9) is None)
    with report.test("a host that is denied loses its controller and stays out"):
        one.target.snapctl("host", "deny", NQN, two.hostnqn)
        two.wait_for("the second host has lost its controller", lambda: two.state() != "live")
        expect("the first host", one.state(), "live")
        listed = [controller["host_nqn"] for controller in one.target.asked("controller", "list")["controllers"]]
        expect("controllers", listed, [one.hostnqn])


def test_restart_keeps(report: Report, host: OperatedHost) -> None:
    with report.test("what the operator made is there again after kill -9, and the host goes on with it"):
        before = host.target.asked("namespace", "list")
        host.target.kill()
        host.wait_for("the host has lost the controller", lambda: host.state() != "live")
        host.target.start()
        host.wait_for("the controller is live again", lambda: host.state() == "live")

        def kept(listed: dict[str, list[dict[str, object]]]) -> list[tuple[object, ...]]:
            # Memory is lost with the process, and is a new disk afterwards.
            return [(it["nsid"], it["source_text"], it["bytes"]) for it in listed["namespaces"]]

        expect("namespaces", kept(host.target.asked("namespace", "list")), kept(before))
        device = host.wait_device(2)
        host.do(f"mount -t ext4 -o ro {device} /mnt")
        expect("what was in the file", host.do("cat /mnt/file").strip(), "kept")
        host.do("umount /mnt")


def test_stat(report: Report, host: OperatedHost) -> None:
    with report.test("stat counts what a host has done, byte for byte"):
        device = host.wait_device(2)

        def read_bytes() -> int:
            rows = host.target.asked("stat", "--totals")["hosts"]
            return sum(int(row["read_bytes"]) for row in rows if row["nsid"] == 2 and row["host_nqn"] == host.hostnqn)

        before = read_bytes()
        host.do(f"dd if={device} of=/dev/null bs=1M count=16 iflag=direct status=none")
        expect("bytes", read_bytes() - before, 16 * MIB)
    with report.test("SIGTERM under I/O: the daemon drains and ends with status 0, and the host goes on when it is back"):
        device = host.wait_device(2)
        host.begin_verify(device, "drain", 20)
        host.wait_for_io(device)
        host.target.stop()
        host.target.start()
        host.wait_for("the controller is live again", lambda: host.state() == "live")
        host.end_verify("drain")
        host.do(f"nvme disconnect -n {NQN}")
