"""Files on NFS, mapped where they lie and served: what a host reads of them, and what it meets when they change or their server is gone.

The kernel's own NFS server and client, over the guest's loopback. No daemon stands behind the server: what `exportfs` would arrange is written to the kernel's
tables (nfsd(7), "/proc/net/rpc/*/channel").
"""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

from lab.guest import Guest, Result

from .report import Report, expect, expect_that, wait_for
from .volumes import FIXTURES

NQN = "nqn.2026-11.io.xio:snap"
EXPORT, MOUNT, LOG, PID = "/srv/export", "/mnt/nfs", "/tmp/target.log", "/tmp/target.pid"
# Of bare elements, beside the disk of all files.
TOKENS = "tokens/r50k-u32.bin"
DISK, ELEMENTS, MEMORY = 1, 2, 3
BLOCK = 4096
# A byte of TOKENS that is changed.
CHANGED = 122 * BLOCK + 288
# What the host gives a command before it resets its controller: 30 s where nobody asks.
IO_TIMEOUT_S = 5
RETRIES = "/sys/module/nvme_core/parameters/max_retries"
UNRECOVERED_READ_ERROR = 0x281
DO_NOT_RETRY = 0x4000

SETUP = f"""set -e
for module in nfsd nfs nfsv4 ext4 nvme-tcp erofs; do modprobe $module; done
modprobe brd rd_nr=1 rd_size={64 << 10}
mkdir -p {EXPORT} {MOUNT} /mnt/disk /var/lib/nfs/v4recovery
mkfs.ext4 -q -F /dev/ram0 && mount -t ext4 /dev/ram0 {EXPORT} && mount -t nfsd nfsd /proc/fs/nfsd
echo -3 >/proc/fs/nfsd/versions
# The shortest that there are: a client that comes back after a restart of the server waits no longer.
echo 10 >/proc/fs/nfsd/nfsv4leasetime && echo 10 >/proc/fs/nfsd/nfsv4gracetime
echo {IO_TIMEOUT_S} >/sys/module/nvme_core/parameters/io_timeout
cp -a /share/data {EXPORT}/
"""
# Domain `lab` is this machine, and its root (fsid 0) the folder: insecure ports, no subtree check, root stays root (linux/nfsd/export.h). Which clients and
# folders there are is forgotten with the last thread.
SERVE = f"""
echo 'nfsd 127.0.0.1 2147483647 lab' >/proc/net/rpc/auth.unix.ip/channel
echo 'lab {EXPORT} 2147483647 {0x2402} 65534 65534 0' >/proc/net/rpc/nfsd.export/channel
printf '%s\\n' 'lab 1 \\x00000000 2147483647 {EXPORT}' >/proc/net/rpc/nfsd.fh/channel
echo 'tcp 2049' >/proc/fs/nfsd/portlist && echo 4 >/proc/fs/nfsd/threads
"""


def lay_out_data(folder: Path) -> None:
    """The demo's folder, and elements without a header."""
    shutil.copytree(FIXTURES.parent / "dataset", folder)
    shutil.copy(FIXTURES / Path(TOKENS).name, folder / TOKENS)


class Machine:
    """The guest: server, client, target and host at once."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest

    def run(self, script: str, timeout_s: float = 180.0) -> Result:
        return self._guest.run(f"export PATH=/share:$PATH; {script}", timeout_s)

    def do(self, script: str, timeout_s: float = 180.0) -> str:
        return self.run(script, timeout_s).checked()

    def begin(self) -> None:
        self._guest.run(SETUP, 300).checked()
        # No client is known yet that would have to be waited for.
        self._guest.run(f"{SERVE} echo Y >/proc/fs/nfsd/v4_end_grace").checked()
        self.mount()

    def mount(self, how: str = "hard") -> None:
        options = f"vers=4.2,proto=tcp,addr=127.0.0.1,clientaddr=127.0.0.1,{how}"
        # Without its helper, which is not there, and does no more than this.
        self._guest.run(f"mount -i -t nfs4 -o {options} 127.0.0.1:/ {MOUNT}").checked()

    def end_server(self) -> None:
        self.do("echo 0 >/proc/fs/nfsd/threads")

    def begin_server(self) -> None:
        self.do(SERVE)

    def start_target(self) -> Result:
        """Returns when it is ready, or has ended."""
        stores = f"{MOUNT}/data.xio {MOUNT}/ids.xio mem:4MiB"
        return self.run(
            # Emptied here: the shell may look before the one in the background has opened it.
            f": >{LOG}; snap-target {stores} --prefetch off --listen 127.0.0.1:4420 >{LOG} 2>&1 & target=$!; echo $target >{PID}\n"
            f"until grep -q ^ready {LOG}; do kill -0 $target || exit 1; sleep 0.1; done"
        )

    def connect(self) -> None:
        self.do(f"timeout 30 nvme connect -t tcp -a 127.0.0.1 -s 4420 -n {NQN} --reconnect-delay=1")
        wait_for("three namespaces appear", lambda: len(self.do("echo /sys/block/nvme?n?/nsid").split()) == 3, 30)

    def stop_target(self) -> None:
        self.do(f"nvme disconnect -n {NQN}")
        self.do(f"kill $(cat {PID}) && while [ -d /proc/$(cat {PID})/fd ]; do sleep 0.1; done")

    def device(self, nsid: int) -> str:
        return "/dev/" + self.do(f"grep -lx {nsid} /sys/block/nvme?n?/nsid").split("/")[3]

    def read(self, nsid: int, byte: int, blocks: int = 1) -> str:
        """A command that prints the SHA-256 of some blocks."""
        return f"dd if={self.device(nsid)} bs={BLOCK} skip={byte // BLOCK} count={blocks} iflag=direct status=none | sha256sum | cut -c1-64"

    def last_error(self) -> tuple[int, int, int]:
        """NSID, LBA and status of the newest entry of the error log."""
        printed = self.do("nvme error-log /dev/nvme0 -e 1")
        entry = dict(re.findall(r"^(\w+)\s*: (\w+)", printed, re.MULTILINE))
        return int(entry["nsid"], 0), int(entry["lba"], 0), int(entry["status_field"], 0)

    def wait_for_kernel(self, words: str) -> None:
        """Its log has them, from now on."""
        self.do("dmesg -c >/tmp/said")
        wait_for(f"the kernel says {words!r}", lambda: words in self.do("dmesg"), 60)

    def log_tail(self, lines: int = 20) -> str:
        return self.run(f"tail -n {lines} {LOG}").output


def test_mapped(report: Report, machine: Machine) -> None:
    with report.test("a folder on NFS and elements on NFS are mapped there, and the volumes are whole"):
        machine.do(f"cd {MOUNT} && xio map data -o data.xio && xio map data/{TOKENS} --dtype u32 -o ids.xio")
        machine.do(f"cd {MOUNT} && xio verify data.xio && xio verify ids.xio && xio diff data data.xio")
        sizes = [int(size) for size in machine.do(f"stat -c %s {MOUNT}/data.xio {MOUNT}/ids.xio").split()]
        expect_that(f"volumes of {sizes} bytes hold no data", max(sizes) < 200_000)


def test_soft(report: Report, machine: Machine) -> None:
    with report.test("a soft mount: a read fails while the server is gone, the log says why, and the other disk goes on"):
        machine.do(f"umount {MOUNT}")
        machine.mount("soft,timeo=10,retrans=1")
        # Linux would try a read again that failed, five times.
        machine.do(f"echo 0 >{RETRIES}")
        expect_that("the target is ready: " + machine.log_tail(), machine.start_target().status == 0)
        machine.connect()
        first = machine.read(ELEMENTS, 0)
        expect("a block", machine.do(first).strip(), sha256(block(0)))
        machine.end_server()
        read = machine.run(first)
        expect_that(f"dd says {read.output!r}", "No data available" in read.output)
        expect("NSID, LBA and status", machine.last_error(), (ELEMENTS, 0, UNRECOVERED_READ_ERROR))
        said = machine.log_tail(1)
        why = f"file:{MOUNT}/data/{TOKENS}: reading at byte 0 failed: EIO: I/O error; the medium is failing, or the server that it is mounted from does not answer"
        expect_that(f"the log has it: {said}", why in said)
        expect("the other disk", machine.do(machine.read(MEMORY, 0)).strip(), sha256(bytes(BLOCK)))
    with report.test("the server is back: the same read succeeds"):
        machine.begin_server()
        expect("a block", machine.do(first).strip(), sha256(block(0)))
        machine.stop_target()
        machine.do(f"echo 5 >{RETRIES} && umount {MOUNT}")
        # What is opened anew would wait for clients that come back after the restart, as long as the daemon has patience: there are none.
        machine.do("echo Y >/proc/fs/nfsd/v4_end_grace")
        machine.mount()


def test_served(report: Report, machine: Machine) -> None:
    with report.test("served from NFS: a host mounts the disk, and each file has its SHA-256; the elements, too"):
        expect_that("the target is ready: " + machine.log_tail(), machine.start_target().status == 0)
        machine.connect()
        machine.do(f"mount -t erofs -o ro {machine.device(DISK)} /mnt/disk")
        found = machine.do("cd /mnt/disk && find . -type f -not -path './.xio/*' -exec sha256sum {} + && cd / && umount /mnt/disk")
        expect("files", dict(reversed(line.split("  ./")) for line in found.splitlines()), digests_of_files())
        whole = tokens().ljust(-(-len(tokens()) // BLOCK) * BLOCK, b"\0")
        expect("elements", machine.do(machine.read(ELEMENTS, 0, len(whole) // BLOCK)).strip(), sha256(whole))


def test_changed(report: Report, machine: Machine) -> None:
    with report.test("a byte changed on the server while it is served: Unrecovered Read Error, and the log has file and offset"):
        machine.do(f"printf X | dd of={EXPORT}/data/{TOKENS} bs=1 seek={CHANGED} conv=notrunc status=none")
        read = machine.run(machine.read(ELEMENTS, CHANGED))
        expect_that(f"dd says {read.output!r}", "No data available" in read.output)
        place = CHANGED // BLOCK
        expect("NSID, LBA and status", machine.last_error(), (ELEMENTS, place, UNRECOVERED_READ_ERROR | DO_NOT_RETRY))
        where = f"namespace {ELEMENTS}: presented byte {place * BLOCK}: stream 0, granule {place}, at byte {place * BLOCK} of source 1: checksum mismatch"
        said = machine.log_tail(1)
        expect_that(f"the log has it: {said}", where in said and f"that source is data/{TOKENS} " in said)
        before, behind = (machine.do(machine.read(ELEMENTS, CHANGED + step)).strip() for step in (-BLOCK, BLOCK))
        expect("the blocks around it", [before, behind], [sha256(block(place - 1)), sha256(block(place + 1))])


def test_refused(report: Report, machine: Machine) -> None:
    place = f"{MOUNT}/data/{TOKENS}"
    refused = f"cannot serve {MOUNT}/data.xio: {place} is not the file that the volume was mapped on: "
    with report.test("a file of other bytes is refused when it is attached, and so is one of another length"):
        machine.stop_target()
        machine.do("echo 3 >/proc/sys/vm/drop_caches")
        expect("exit status", machine.start_target().status, 1)
        expect_that("it says so: " + machine.log_tail(), f"{refused}its SHA-256 is another one; map or format it again" in machine.log_tail())
        machine.do(f"cp /share/data/{TOKENS} {EXPORT}/data/{TOKENS} && echo more >>{EXPORT}/data/{TOKENS}")
        expect("exit status", machine.start_target().status, 1)
        bytes_now = len(tokens()) + 5
        expect_that("it says so: " + machine.log_tail(), f"{refused}it is {bytes_now} bytes, and was {len(tokens())}" in machine.log_tail())
    with report.test("one that was touched is read, and served"):
        machine.do(f"cp /share/data/{TOKENS} {EXPORT}/data/{TOKENS}")
        expect_that("the target is ready: " + machine.log_tail(), machine.start_target().status == 0)
        machine.connect()
        expect("a block", machine.do(machine.read(ELEMENTS, CHANGED)).strip(), sha256(block(CHANGED // BLOCK)))


def test_server_gone(report: Report, machine: Machine) -> None:
    with report.test("the server is gone, a hard mount: a read waits, and the other disk goes on, also after the host has reset its controller"):
        machine.end_server()
        wanted = tokens()[: 64 * BLOCK]
        machine.do(f"({machine.read(ELEMENTS, 0, 64)}) >/tmp/late 2>&1 &")
        machine.wait_for_kernel("starting error recovery")
        memory = machine.read(MEMORY, 0)
        expect("the other disk, while the read waits", machine.do(memory).strip(), sha256(bytes(BLOCK)))
        expect("what was read", machine.do("cat /tmp/late"), "")
    with report.test("the server is back: the read ends, and no byte is wrong"):
        machine.begin_server()
        wait_for("the read ends", lambda: machine.do("cat /tmp/late") != "", 60)
        expect("what was read", machine.do("cat /tmp/late").strip(), sha256(wanted))


def test_replaced(report: Report, machine: Machine) -> None:
    kept = machine.read(ELEMENTS, 0)
    with report.test("a file replaced on the server: what was opened is read on"):
        machine.do(f"cp -p {EXPORT}/data/{TOKENS} {EXPORT}/new && mv {EXPORT}/new {EXPORT}/data/{TOKENS}")
        expect("a block", machine.do(kept).strip(), sha256(block(0)))
    with report.test("and once the server has forgotten it: Unrecovered Read Error, the log has the file, and other files are read on"):
        machine.end_server()
        machine.begin_server()
        read = machine.run(kept)
        expect_that(f"dd says {read.output!r}", "No data available" in read.output)
        expect("NSID, LBA and status", machine.last_error(), (ELEMENTS, 0, UNRECOVERED_READ_ERROR))
        said = machine.log_tail(1)
        expect_that(f"the log has it: {said}", f"file:{MOUNT}/data/{TOKENS}: reading at byte 0 failed" in said and "put it back and attach it again" in said)
        machine.do(f"mount -t erofs -o ro {machine.device(DISK)} /mnt/disk")
        found = machine.do("sha256sum </mnt/disk/model.safetensors && umount /mnt/disk").split()[0]
        expect("a file", found, digests_of_files()["model.safetensors"])


def test_end(report: Report, machine: Machine) -> None:
    with report.test("the target is told to end while the server is gone: it does, and the kernel keeps its process until the server is back"):
        machine.end_server()
        machine.do(f"({machine.read(DISK, 1 << 20, 64)}) >/tmp/late 2>&1 &")
        machine.do(f"kill $(cat {PID})")
        wait_for("it says so", lambda: "a store has not let go of its thread; ended without it" in machine.log_tail(), 60)
        machine.begin_server()
        machine.do(f"while [ -d /proc/$(cat {PID})/fd ]; do sleep 0.1; done")
        machine.do(f"nvme disconnect -n {NQN}")


def tokens() -> bytes:
    return (FIXTURES / Path(TOKENS).name).read_bytes()


def block(number: int) -> bytes:
    return tokens()[number * BLOCK :][:BLOCK]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digests_of_files() -> dict[str, str]:
    dataset = FIXTURES.parent / "dataset"
    files = {str(path.relative_to(dataset)): path.read_bytes() for path in dataset.rglob("*") if path.is_file()}
    return {name: sha256(data) for name, data in (files | {TOKENS: tokens()}).items()}


TESTS = (test_mapped, test_soft, test_served, test_changed, test_refused, test_server_gone, test_replaced, test_end)
