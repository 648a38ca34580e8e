"""A store over RoCE: snap-target in guest a reads and writes a namespace of guest b, and Linux's host, in guest a too, has it as a disk over NVMe/TCP.

What is written is compared on the disk of b, past every cache. What stands in b is for others to say: `rdma_foreign`, `rdma_ours`.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from lab.guest import Result
from lab.pair import Machine, Pair

from .nfs import digests_of_files
from .report import Report, Unexpected, expect, wait_for
from .volumes import FIXTURES

REMOTE_NQN = "nqn.2014-08.org.nvmexpress:xio-lab-store"
LOCAL_NQN = "nqn.2026-11.io.xio:lab"
SERVICE = 4420
BLOCKS_NSID, VOLUME_NSID = 1, 2
BLOCK_BYTES = 128 << 10
SIZE_BYTES = 8 << 20
PARTS = 64
LOG, PID = "/tmp/snap-target.log", "/tmp/snap-target.pid"
START_SECONDS_MAX = 30.0
TRANSFER_SECONDS_MAX = 120.0


def lay_out(share: Path, snap_target: Path, xio: Path, seed: int) -> None:
    """What the guests need: the daemon for their own C library (it opens RDMA's libraries there), the data, and a packed dataset."""
    share.mkdir()
    # Symbols are most of it, and the guests read it through a narrow door.
    subprocess.run(["strip", "-o", str(share / "snap-target"), str(snap_target)], check=True)
    (share / "data").write_bytes(_data(seed))
    dataset = share / "dataset"
    shutil.copytree(FIXTURES.parent / "dataset", dataset)
    subprocess.run([str(xio), "pack", str(dataset), "-o", str(share / "dataset.xio")], check=True, capture_output=True)


def _data(seed: int) -> bytes:
    return Random(seed).randbytes(SIZE_BYTES + PARTS * BLOCK_BYTES)


@dataclass
class Store:
    """snap-target in guest a, the disk that it serves there, and what it has in guest b."""

    pair: Pair
    parts: Iterator[int] = field(default_factory=lambda: iter(range(PARTS)))
    part: int = 0

    def next_part(self) -> None:
        """Other bytes than before, so that what an earlier test wrote is not taken for this one's."""
        self.part = next(self.parts)

    def start(self, store: str, listen: str = "127.0.0.1") -> None:
        self.do(
            f": >{LOG}; ulimit -l unlimited; /share/snap-target {store} --listen {listen}:{SERVICE} --nqn {LOCAL_NQN} >{LOG} 2>&1 & echo $! >{PID}"
        )

        def is_ready() -> bool:
            if self.run(f"kill -0 $(cat {PID})").status != 0:
                raise Unexpected(f"snap-target has ended: {self.said()}")
            return self.run(f"grep -q ^ready {LOG}").status == 0

        wait_for("snap-target is ready", is_ready, START_SECONDS_MAX)

    @contextmanager
    def served(self, store: str) -> Iterator[None]:
        """Served, and connected to by the kernel's host, which gives nothing up."""
        self.start(store)
        try:
            self.do(f"modprobe nvme_tcp && dmesg -c >/dev/null && timeout 60 nvme connect -t tcp -a 127.0.0.1 -s {SERVICE} -n {LOCAL_NQN} --nr-io-queues=1 --ctrl-loss-tmo=-1")
            wait_for("the disk is there", lambda: self.run("[ -b /dev/nvme0n1 ]").status == 0, START_SECONDS_MAX)
            yield
            # No operation passes its deadline of 25 s, and none the host's own 30 s.
            expect("commands that failed", self.do(f"grep -c 'a command failed' {LOG} || true").strip(), "0")
            expect("errors in the kernel's log", self.do("dmesg | grep -cE 'I/O error|critical [a-z]+ error|nvme.* timeout' || true").strip(), "0")
        finally:
            self.run(f"nvme disconnect -n {LOCAL_NQN}")
            self.stop()

    def stop(self) -> None:
        self.do(f"kill $(cat {PID}); while [ -d /proc/$(cat {PID})/fd ]; do sleep 0.1; done")
        if "panicked" in (said := self.said()):
            raise Unexpected(f"snap-target panicked: {said}")

    def run(self, script: str, timeout_s: float = TRANSFER_SECONDS_MAX) -> Result:
        return self.pair.a.run(script, timeout_s)

    def do(self, script: str, timeout_s: float = TRANSFER_SECONDS_MAX) -> str:
        return self.pair.a.do(script, timeout_s)

    def said(self) -> str:
        return self.run(f"tail -n 12 {LOG}").output

    def wanted(self) -> str:
        start = self.part * BLOCK_BYTES
        return hashlib.sha256(_data(self.pair.seed)[start : start + SIZE_BYTES]).hexdigest()

    def write(self) -> None:
        blocks = f"skip={self.part} count={SIZE_BYTES // BLOCK_BYTES}"
        self.do(f"dd if=/share/data of=/dev/nvme0n1 bs={BLOCK_BYTES} {blocks} oflag=direct conv=fsync 2>&1")

    def read(self) -> str:
        return self.do(f"dd if=/dev/nvme0n1 bs={BLOCK_BYTES} count={SIZE_BYTES // BLOCK_BYTES} iflag=direct 2>/dev/null | sha256sum").split()[0]

    def on_target(self) -> str:
        return self.pair.b.do(f"dd if=/dev/ram0 bs=1M count={SIZE_BYTES >> 20} iflag=direct 2>/dev/null | sha256sum").split()[0]

    def expect_transfer(self) -> None:
        """Other bytes than before are written; the target's disk has them, and they are read back."""
        self.next_part()
        self.write()
        self.expect_on_disk()

    def expect_on_disk(self) -> None:
        expect("SHA-256 of the target's disk", self.on_target(), self.wanted())
        expect("SHA-256 of what was read", self.read(), self.wanted())

    def wait_for_bytes(self, count: int) -> None:
        """Until so many more came from guest a."""
        counts = self.pair.switch.counts["a"]
        received = counts.received_bytes
        wait_for("data flow", lambda: counts.received_bytes > received + count, TRANSFER_SECONDS_MAX)


def url(*addresses: str, nsid: int = BLOCKS_NSID, more: str = "", transport: str = "rdma", service: int = SERVICE) -> str:
    hosts = ",".join(f"[{address}]" if ":" in address else address for address in addresses)
    port = "" if service == SERVICE else f":{service}"
    return f"'nvme+{transport}://{hosts}{port}/{REMOTE_NQN}?nsid={nsid}{more}'"


def test_volume(report: Report, store: Store, whose: str) -> None:
    with report.test(f"three parties: a packed dataset over RoCE from {whose}, decoded in guest a: the host there mounts it, and each file has its SHA-256"):
        with store.served(f"volume:{url(store.pair.b.ipv4, nsid=VOLUME_NSID)}"):
            expect_files(store.pair.a)


def expect_files(host: Machine) -> None:
    """The host's disk, mounted, has every file of the dataset."""
    host.do("modprobe erofs; mkdir -p /mnt/disk && mount -t erofs -o ro /dev/nvme0n1 /mnt/disk")
    found = host.do("cd /mnt/disk && find . -type f -not -path './.xio/*' -exec sha256sum {} + && cd / && umount /mnt/disk", TRANSFER_SECONDS_MAX)
    wanted = {name: digest for name, digest in digests_of_files().items() if (FIXTURES.parent / "dataset" / name).is_file()}
    expect("files", dict(reversed(line.split("  ./")) for line in found.splitlines()), wanted)
    print(f"        {len(wanted)} files", flush=True)
