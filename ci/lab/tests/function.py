"""A PCIe function of snap-target as a guest's stock nvme driver has it."""

from __future__ import annotations

import hashlib
import json
import random
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from lab.guest import Guest

from . import files
from .daemon import Daemon
from .report import Report, Unexpected, expect, expect_that, wait_for
from .volumes import FIXTURES, PackFailed

NQN = "nqn.2014-08.org.nvmexpress:xio-lab-pcie"
# The file that is one of the disks, the memory that is another.
FILE_BYTES = 16 << 20
# Of less than 300 MiB mkfs.xfs makes no file system.
MEMORY = "320MiB"
# As guests are started with; the second part, of which the guest makes a node of its own, is not shared.
GUEST_MEMORY = "1024M"
APART_MIB = 256
IDLE_SECONDS = 5.0
COALESCED_READS = 6400
# Of one core. The build machine is shared: what is counted is the process's own time.
IDLE_SHARE_MAX = 0.01


# Where a packed folder is.
FILES_NSID = 4


class FunctionTarget(Daemon):
    """snap-target with a function: a file, memory, and where xio is given a packed dataset, and a packed folder."""

    def __init__(
        self, command: Sequence[str], folder: Path, chance: random.Random, xio: Sequence[str] | None, poll: bool = False
    ) -> None:
        super().__init__(folder / "target.log")
        self.socket = folder / "function"
        self.file = folder / "disk.raw"
        self.file.write_bytes(chance.randbytes(FILE_BYTES))
        # NSID, and what must be read there.
        self.contents = {1: self.file.read_bytes()}
        stores = [f"file:{self.file}", f"mem:{MEMORY}"]
        if xio is not None:
            source, volume = FIXTURES / "r50k-u32.bin", folder / "ids.xio"
            packed = [*xio, "pack", str(source), "--dtype", "u32", "--store-as", "u16+lz4", "-o", str(volume)]
            done = subprocess.run(packed, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise PackFailed(f"{' '.join(packed)}: {done.stderr.strip()}")
            stores.append(str(volume))
            self.contents[3] = source.read_bytes()
            files.pack(xio, folder / "files.xio")
            stores.append(str(folder / "files.xio"))
        self._command = [*command, *stores, "--listen", f"127.0.0.1:{self.port}", "--nqn", NQN]
        # One core for QEMU is left where the doorbells are polled.
        self._command += ["--vfio-user", f"{self.socket},poll", "--reactors", "1"] if poll else ["--vfio-user", str(self.socket), "--reactors", "2"]
        self.namespaces = len(stores)

    def start(self) -> None:
        self.run(self._command, self.socket)


def options(target: FunctionTarget) -> list[str]:
    """QEMU's: the guest's memory is shared, and the function is on its bus."""
    device = {"driver": "vfio-user-pci", "socket": {"type": "unix", "path": str(target.socket)}}
    return [
        *("-object", f"memory-backend-memfd,id=mem,size={GUEST_MEMORY},share=on", "-machine", "memory-backend=mem"),
        *("-device", json.dumps(device)),
    ]


def apart_options(target: FunctionTarget) -> list[str]:
    """The same, with memory that the target has no descriptor of."""
    device = {"driver": "vfio-user-pci", "socket": {"type": "unix", "path": str(target.socket)}}
    return [
        *("-object", f"memory-backend-memfd,id=mem,size={GUEST_MEMORY},share=on", "-numa", "node,nodeid=0,cpus=0-1,memdev=mem"),
        *("-object", f"memory-backend-ram,id=apart,size={APART_MIB}M", "-numa", "node,nodeid=1,memdev=apart"),
        *("-device", json.dumps(device)),
    ]


def devices(guest: Guest) -> dict[int, str]:
    """By NSID: the kernel numbers disks as it finds them."""
    printed = guest.run("cd /sys/block && grep -H . nvme*n*/nsid").output
    return {int(nsid): f"/dev/{name}" for name, nsid in re.findall(r"^(nvme\d+n\d+)/nsid:(\d+)$", printed, re.MULTILINE)}


def wait_for_disks(guest: Guest, target: FunctionTarget) -> None:
    wait_for("the disks appear", lambda: len(devices(guest)) == target.namespaces, 30.0)


def shown(guest: Guest) -> str:
    commands = ("nvme list", "nvme id-ctrl /dev/nvme0 | head -30", "grep -i nvme /proc/interrupts", "dmesg | grep -i nvme")
    return "".join(f"# {command}\n{guest.run(command).output}" for command in commands)


def test_controller(report: Report, guest: Guest, target: FunctionTarget) -> None:
    with report.test("the stock driver finds a PCIe NVMe controller"):
        wait_for_disks(guest, target)
        facts = guest.run("cd /sys/class/nvme/nvme0 && cat transport subsysnqn state && cat device/class").checked().split()
        expect("transport, subsystem, state, class", facts, ["pcie", NQN, "live", "0x010802"])
    with report.test("its completions interrupt by MSI-X"):
        lines = guest.run("grep -E 'nvme0q[0-9]+' /proc/interrupts").checked().splitlines()
        queues = [re.search(r"nvme0q(\d+)", line) for line in lines]
        expect_that("an admin and an I/O queue have vectors of their own", len({match.group(1) for match in queues if match}) >= 2)
        expect_that("they are MSI-X", all("MSIX" in line or "MSI-X" in line for line in lines))
    with report.test("disks have their sizes"):
        for nsid, content in target.contents.items():
            blocks = -(-len(content) // 4096) * 4096
            expect(f"namespace {nsid}", int(guest.run(f"blockdev --getsize64 {devices(guest)[nsid]}").checked()), blocks)


def test_reads(report: Report, guest: Guest, target: FunctionTarget) -> None:
    disks = devices(guest)
    for nsid, content in target.contents.items():
        wanted = hashlib.sha256(content).hexdigest()
        with report.test(f"namespace {nsid}: every byte, read through the page cache"):
            printed = guest.run(f"head -c {len(content)} {disks[nsid]} | sha256sum", 180).checked()
            expect("sha256", printed.split()[0], wanted)
        for size in ("4k", "132k", "1M"):
            with report.test(f"namespace {nsid}: every byte, {size} at a time past the cache"):
                printed = guest.run(f"dd if={disks[nsid]} bs={size} iflag=direct status=none | head -c {len(content)} | sha256sum", 300).checked()
                expect("sha256", printed.split()[0], wanted)


def test_files(report: Report, guest: Guest) -> None:
    disk = devices(guest).get(FILES_NSID)
    if disk is not None:
        with report.test("a packed folder is mounted, and each file has its SHA-256"):
            files.expect_mounted(guest, disk)


def test_writes(report: Report, guest: Guest, target: FunctionTarget) -> None:
    disks = devices(guest)
    with report.test("memory: random sizes at random places, 16 deep, each verified"):
        guest.run(
            f"fio --name=v --filename={disks[2]} --size=32M --rw=randwrite --bsrange=4k-256k --blockalign=4k --direct=1 "
            "--ioengine=libaio --iodepth=16 --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=7 --minimal",
            300,
        ).checked()
    with report.test("memory: written and read back, 1 MiB at a time"):
        script = (
            "dd if=/dev/urandom of=/tmp/data bs=1M count=32 status=none && "
            f"dd if=/tmp/data of={disks[2]} bs=1M oflag=direct seek=64 status=none && "
            f"dd if={disks[2]} bs=1M iflag=direct skip=64 count=32 status=none | cmp - /tmp/data"
        )
        guest.run(script, 180).checked()
    if 3 in target.contents:
        with report.test("a packed dataset is write-protected"):
            expect("read-only", guest.run(f"blockdev --getro {disks[3]}").checked().strip(), "1")
            expect_that("a write fails", guest.run(f"dd if=/dev/zero of={disks[3]} bs=4k count=1 oflag=direct").status != 0)


# Runs a program whose memory, its part of the page cache included, is of node 1 alone: set_mempolicy(MPOL_BIND).
BOUND = "import ctypes, os, sys; ctypes.CDLL(None).syscall(238, 2, ctypes.byref(ctypes.c_ulong(2)), 64) and sys.exit(9); os.execvp(sys.argv[1], sys.argv[1:])"


def test_apart(report: Report, guest: Guest, target: FunctionTarget) -> None:
    disks = devices(guest)
    bound = f"python3 -c '{BOUND}'"
    for size in ("4k", "1M"):
        with report.test(f"memory that is not shared: every byte of a file, {size} at a time"):
            wanted = hashlib.sha256(target.contents[1]).hexdigest()
            printed = guest.run(f"{bound} dd if={disks[1]} bs={size} iflag=direct status=none | sha256sum", 300).checked()
            expect("sha256", printed.split()[0], wanted)
    job = (
        f"{bound} fio --name=v --filename={disks[2]} --rw=randwrite --bsrange=4k-256k --blockalign=4k --direct=1 --thread "
        "--ioengine=libaio --iodepth=16 --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=7 --minimal"
    )
    with report.test("memory that is not shared: random sizes at random places, 16 deep, each verified"):
        guest.run(f"{job} --size=16M", 300).checked()
    with report.test("memory that is not shared: the same while the target is stopped and goes on, again and again"):
        guest.run(f"({job} --size=32M; echo $? > /tmp/ended) > /tmp/said 2>&1 &").checked()
        # Its answers fill QEMU's side of the socket meanwhile.
        while "ended" not in guest.run("ls /tmp").output:
            for number in (signal.SIGSTOP, signal.SIGCONT) * 10:
                target.signal(number)
                time.sleep(0.03)
        expect(f"fio's exit status ({guest.run('tail -c 300 /tmp/said').output})", guest.run("cat /tmp/ended").checked().strip(), "0")
    with report.test("memory that is not shared: the page cache, and a file system"):
        script = (
            f"modprobe ext4 && {bound} mkfs.ext4 -q {disks[2]} && mkdir -p /mnt/a && mount {disks[2]} /mnt/a && "
            f"{bound} dd if=/dev/urandom of=/mnt/a/f bs=64k count=100 status=none && {bound} cp /mnt/a/f /mnt/a/g && sync && echo 3 > /proc/sys/vm/drop_caches && "
            f"{bound} cmp /mnt/a/f /mnt/a/g && umount /mnt/a && e2fsck -fn {disks[2]}"
        )
        guest.run(script, 180).checked()
    with report.test("the guest's kernel has not complained of that"):
        expect("complaints", guest.run("dmesg | grep -iE 'nvme' | grep -iE 'I/O error|timeout|controller is down'").output.splitlines(), [])


def messages(target: FunctionTarget) -> list[int]:
    """Of each client that is gone, how many went to it."""
    return [int(number) for number in re.findall(r"messages=(\d+)", target.log())]


def test_messages(report: Report, target: FunctionTarget, gone: int, whole_mib: int) -> None:
    with report.test("its bytes went by messages"):
        wait_for("one more client is gone", lambda: len(messages(target)) > gone, 10.0)
        sent = messages(target)[-1]
        print(f"  {sent} messages")
        # 32 KiB at most each.
        expect_that(f"{sent} messages for {whole_mib} MiB", sent > whole_mib * 32)


def test_coalescing(report: Report, guest: Guest) -> None:
    with report.test("Interrupt Coalescing: two interrupts are at least its time apart; without it they are not"):
        disks = devices(guest)
        # One CPU, so that one queue's vector is counted. Field 9 of fio's terse lines: how long it read, in milliseconds.
        job = f"fio --name=c --filename={disks[2]} --rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=32 --number_ios={COALESCED_READS} --size=64M --cpus_allowed=0 --minimal | cut -d';' -f9"

        def interrupts() -> int:
            lines = guest.run("grep -E 'nvme0q[1-9]' /proc/interrupts").checked().splitlines()
            return sum(int(word) for line in lines for word in line.split(":")[1].split()[:2])

        for coalesced in (True, False):
            # No 256 completions are ever under way: each interrupt waits for the 10 ms.
            guest.run(f"nvme set-feature /dev/nvme0 -f 8 -V {'0x64ff' if coalesced else 0}").checked()
            before = interrupts()
            took_ms = int(guest.run(job, 120).checked())
            counted = interrupts() - before
            print(f"  {counted} interrupts for {COALESCED_READS:,} reads, 32 deep, in {took_ms} ms {'with' if coalesced else 'without'} coalescing")
            # A slow machine makes both rarer, and never those with coalescing more frequent. One may have waited already, one comes at the end.
            expect_that(f"{counted} in {took_ms} ms", (counted - 2) * 10 <= took_ms if coalesced else counted * 10 > took_ms)


def test_filesystem(report: Report, guest: Guest, target: FunctionTarget) -> None:
    disks = devices(guest)
    with report.test("mkfs.ext4, mount, files, fsck"):
        script = (
            f"modprobe ext4 && mkfs.ext4 -q {disks[2]} && mkdir -p /mnt/d && mount {disks[2]} /mnt/d && "
            "mkdir /mnt/d/a && dd if=/dev/urandom of=/mnt/d/a/f bs=64k count=100 status=none && cp /mnt/d/a/f /mnt/d/g && sync && "
            f"umount /mnt/d && e2fsck -fn {disks[2]} && mount {disks[2]} /mnt/d && cmp /mnt/d/a/f /mnt/d/g && umount /mnt/d"
        )
        guest.run(script, 180).checked()
    with report.test("mkfs.xfs, mount, fio with random sizes, xfs_repair"):
        xfs_verified(guest, disks[2])


def xfs_verified(guest: Guest, disk: str) -> None:
    """A file of random blocks on xfs, verified, and the file system looked over."""
    script = (
        f"modprobe xfs && mkfs.xfs -q -f {disk} && mkdir -p /mnt/x && mount -t xfs {disk} /mnt/x && "
        "fio --name=x --directory=/mnt/x --size=24M --rw=randwrite --bsrange=4k-512k --blockalign=4k --ioengine=libaio --direct=1 --iodepth=8 "
        "--verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=11 --minimal && cp /mnt/x/x.0.0 /mnt/x/copy && sync && echo 3 > /proc/sys/vm/drop_caches && "
        f"cmp /mnt/x/x.0.0 /mnt/x/copy && umount /mnt/x && xfs_repair -n {disk}"
    )
    guest.run(script, 240).checked()


def forbid_msi(guest: Guest) -> None:
    """Before the driver is there: all that is left to it is the line."""
    guest.run("for it in /sys/bus/pci/devices/*; do case $(cat $it/class) in 0x010802) echo 0 > $it/msi_bus;; esac; done").checked()


def test_line(report: Report, guest: Guest, target: FunctionTarget) -> None:
    disks = devices(guest)
    with report.test("without MSI-X the controller interrupts by the line"):
        lines = guest.run("grep -E 'nvme0q[0-9]+' /proc/interrupts").checked().splitlines()
        expect_that("\n".join(lines), bool(lines) and not any("MSI" in line for line in lines))
    with report.test("every byte is read, and random sizes are written and verified, 16 deep"):
        printed = guest.run(f"dd if={disks[1]} bs=132k iflag=direct status=none | sha256sum", 180).checked()
        expect("sha256", printed.split()[0], hashlib.sha256(target.contents[1]).hexdigest())
        guest.run(
            f"fio --name=v --filename={disks[2]} --size=16M --rw=randwrite --bsrange=4k-256k --blockalign=4k --direct=1 "
            "--ioengine=libaio --iodepth=16 --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=7 --minimal",
            300,
        ).checked()
        guest.run("nvme reset /dev/nvme0").checked()
        guest.run(f"dd if={disks[1]} of=/dev/null bs=4k count=500 iflag=direct status=none", 120).checked()
    with report.test("the line goes down again, and the kernel does not give it up"):
        counts = guest.run("grep -E 'nvme0q[0-9]+' /proc/interrupts").checked().split(":")[1].split()
        told, done = sum(int(it) for it in counts if it.isdigit()), requests(guest)
        print(f"  {told} interrupts for {done} requests")
        # The controller's own commands are among them.
        expect_that(f"{told} for {done} requests", 0 < told < 2 * done)
        expect("complaints", guest.run("dmesg | grep -iE 'nobody cared|Disabling IRQ|nvme.*timeout'").output.splitlines(), [])


def test_reset(report: Report, guest: Guest, target: FunctionTarget) -> None:
    disks = devices(guest)
    with report.test("nvme reset: the disks are there again"):
        for _ in range(3):
            guest.run("nvme reset /dev/nvme0").checked()
        printed = guest.run(f"dd if={disks[1]} bs=1M count=4 iflag=direct status=none | sha256sum").checked()
        expect("sha256", printed.split()[0], hashlib.sha256(target.contents[1][: 4 << 20]).hexdigest())
    with report.test("a reset under load: everything is read all the same"):
        script = (
            f"fio --name=r --filename={disks[1]} --rw=randread --bs=16k --direct=1 --ioengine=libaio --iodepth=8 --time_based --runtime=6 --minimal & "
            "for _ in 1 2 3; do sleep 1; nvme reset /dev/nvme0 || exit 1; done; wait $!"
        )
        guest.run(script, 120).checked()
    with report.test("the guest's kernel has not complained"):
        pattern = "I/O error|timeout|controller is down|Buffer I/O"
        lines = guest.run(f"dmesg | grep -iE 'nvme' | grep -iE '{pattern}'").output.splitlines()
        expect("complaints", lines, [])


def test_idle(report: Report, guest: Guest, target: FunctionTarget) -> None:
    with report.test(f"a function that nobody uses takes less than {IDLE_SHARE_MAX:.0%} of a core"):
        guest.run("sync").checked()
        expect_asleep(target)


def test_polling(report: Report, guest: Guest, target: FunctionTarget) -> None:
    with report.test("the target looks for doorbells all the time, though the guest does nothing"):
        guest.run("sync").checked()
        time.sleep(1.0)
        before, began = target.processor_seconds(), target.sleeps()
        time.sleep(IDLE_SECONDS)
        # The machine is shared: what the target has of a core may be far less than one. What it does not do is wait for anything.
        used, slept = target.processor_seconds() - before, target.sleeps() - began
        expect_that(f"{used:.2f} s of {IDLE_SECONDS:.0f} s is more than that of one that sleeps", used / IDLE_SECONDS >= IDLE_SHARE_MAX)
        expect_that(f"its reactor has slept {slept} times", slept <= 2)


def test_unbound(report: Report, guest: Guest, target: FunctionTarget) -> None:
    with report.test("given up by the guest's driver, it sleeps; taken again, it works"):
        address = guest.run("basename $(realpath /sys/class/nvme/nvme0/device)").checked().strip()
        for _ in range(2):
            guest.run(f"echo {address} > /sys/bus/pci/drivers/nvme/unbind").checked()
            expect_asleep(target)
            guest.run(f"echo {address} > /sys/bus/pci/drivers/nvme/bind").checked()
            wait_for("the disks appear", lambda: len(devices(guest)) == target.namespaces, 30.0)
        printed = guest.run(f"dd if={devices(guest)[1]} bs=1M iflag=direct status=none | sha256sum").checked()
        expect("sha256", printed.split()[0], hashlib.sha256(target.contents[1]).hexdigest())


def test_gone(report: Report, target: FunctionTarget, done: int) -> None:
    with report.test("without a guest the polled function sleeps"):
        wait_for("the client is gone", lambda: "doorbells=" in target.log(), 10.0)
        expect_asleep(target)
    # The firmware's are: 2,053 of them before Linux, as many whatever the guest does afterwards.
    with report.test("of a request's two doorbells few are messages"):
        rung = sum(int(number) for number in re.findall(r"doorbells=(\d+)", target.log()))
        print(f"  {rung} doorbells were trapped for {done} requests: {rung / done:.2f} each")
        expect_that(f"{rung} for {done} requests", rung < 0.5 * done)


def expect_asleep(target: FunctionTarget) -> None:
    time.sleep(1.0)
    before = target.processor_seconds()
    time.sleep(IDLE_SECONDS)
    used = target.processor_seconds() - before
    if used / IDLE_SECONDS >= IDLE_SHARE_MAX:
        raise Unexpected(f"{used:.2f} s of {IDLE_SECONDS:.0f} s")


def requests(guest: Guest) -> int:
    """Reads, writes, discards and flushes of all disks so far, as the guest's kernel counts them."""
    # With several paths to a disk each path counts its own.
    lines = guest.run("cat /sys/block/nvme*c*n*/stat 2>/dev/null || cat /sys/block/nvme*n*/stat").checked().splitlines()
    return sum(int(line.split()[index]) for line in lines for index in (0, 4, 11, 15))


def test_doorbells(report: Report, target: FunctionTarget, done: int) -> None:
    # Without doorbells in memory there are two a request, or a little less where completions come together.
    with report.test("of a request's two doorbells the guest traps for one at most"):
        counted = r"doorbells=(\d+)"
        wait_for("the client is gone", lambda: re.search(counted, target.log()) is not None, 10.0)
        rung = sum(int(number) for number in re.findall(counted, target.log()))
        print(f"  {rung} doorbells were trapped for {done} requests: {rung / done:.2f} each")
        # The admin queue's are always trapped.
        expect_that(f"{rung} for {done} requests", rung < 1.1 * done)


def test_end(report: Report, target: FunctionTarget) -> None:
    with report.test("the guest is gone; the target goes on, and ends by itself"):
        target.expect_alive()
        target.stop()
        expect_that("its socket is gone", not target.socket.exists())
