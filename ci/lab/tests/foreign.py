"""The project's own initiator, on the build machine, against Linux's NVMe/TCP target in a guest."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from lab.guest import Guest
from lab.network.faults import Corrupt, Cut, Delay, Rate
from lab.network.proxy import PIECE_BYTES_MAX, Proxy
from lab.nvmet import USER_NETWORK_IPV4, LinuxSubsystem, add_ramdisks
from lab.start import start_guest

from .daemon import free_port
from .report import Report, Unexpected, expect, expect_that, wait_for

NQN = "nqn.2014-08.org.nvmexpress:xio-lab-foreign"
DATASET = Path(__file__).resolve().parents[3] / "fixtures" / "dataset"
SIZE_MIB = 16
SIZE_BYTES = SIZE_MIB << 20
# What is only read, what is written, and a disk with a dataset.
READ_NSID, WRITE_NSID, DATASET_NSID = 1, 2, 3
SECONDS_MAX = 120
CUT_SECONDS = 3.0
# What the target has sent before something happens to the connection.
BYTES_BEFORE = 2 << 20
# The dataset takes more than a second then, so that a reset meets it on its way.
DATASET_BYTES_PER_S = 4_000_000


@dataclass
class Programs:
    """`bench` is the initiator's example of that name, which has digests."""

    xio: Sequence[str]
    bench: Sequence[str]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        # A stack is no part of what is said.
        environment = {**os.environ, "RUST_BACKTRACE": "0"}
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=environment)

    def run_xio(self, *arguments: str) -> str:
        """What it prints; it must succeed."""
        done = self.run(*self.xio, *arguments)
        if done.returncode != 0:
            raise Unexpected(f"xio {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def run_bench(self, port: int, *options: str) -> subprocess.CompletedProcess[str]:
        """Fills the namespace with a pattern, reads it for a second, and compares each block."""
        where = ("--addr", f"127.0.0.1:{port}", "--nqn", NQN, "--nsid", str(WRITE_NSID), "--region-mib", str(SIZE_MIB))
        return self.run(*self.bench, *where, "--bs", "131072", "--depth", "8", "--rw", "read", "--verify", "pattern", "--seconds", "1", *options)


@dataclass
class ForeignTarget:
    """`ports` lead to two ports of the one subsystem, as two paths to it."""

    guest: Guest
    subsystem: LinuxSubsystem
    ports: tuple[int, int]
    folder: Path

    @property
    def data(self) -> Path:
        """What READ_NSID holds."""
        return self.folder / "data"

    def sha256_of(self, nsid: int) -> str:
        """Of its disk, as the guest itself sees it past its page cache."""
        printed = self.guest.run(f"dd if=/dev/ram{nsid} bs=1M iflag=direct 2>/dev/null | sha256sum").checked()
        return printed.split()[0]


def url(port: int, nsid: int, nqn: str = NQN) -> str:
    return f"nvme+tcp://127.0.0.1:{port}/{nqn}?nsid={nsid}"


@contextmanager
def foreign_target(programs: Programs, folder: Path, deadline_s: float, seed: int) -> Iterator[ForeignTarget]:
    """`folder` is an empty one to work in."""
    (folder / "data").write_bytes(Random(seed).randbytes(SIZE_BYTES))
    programs.run_xio("pack", str(DATASET), "-o", str(folder / "dataset.xio"))
    programs.run_xio("unpack", str(folder / "dataset.xio"), "-o", str(folder / "disk"))
    ports = (free_port(), free_port())
    with start_guest(deadline_s, share=folder, memory_mib=768, cpus=1, forward=ports) as guest:
        # Disks are counted from 0, namespaces from 1.
        add_ramdisks(guest, 1 + DATASET_NSID, SIZE_MIB)
        for nsid, name in ((READ_NSID, "data"), (DATASET_NSID, "disk")):
            guest.run(f"dd if=/share/{name} of=/dev/ram{nsid} bs=4k oflag=direct").checked()
        subsystem = LinuxSubsystem(guest, NQN)
        for nsid in (READ_NSID, WRITE_NSID, DATASET_NSID):
            subsystem.add_namespace(nsid, f"/dev/ram{nsid}")
        for port_id, port in enumerate(ports, start=1):
            subsystem.listen(port_id, "tcp", USER_NETWORK_IPV4, port)
        yield ForeignTarget(guest, subsystem, ports, folder)


def test_initiator(report: Report, programs: Programs, target: ForeignTarget) -> None:
    first, second = target.ports
    with report.test("xio against Linux's target: for an NQN that is not there, it says what discovery lists"):
        done = programs.run(*programs.xio, "verify", url(first, READ_NSID, "nqn.2014-08.org.example:none"), "--against", str(target.data))
        expect("exit status", done.returncode, 3)
        expect("the last words", done.stderr.strip().rpartition("; ")[2], f"127.0.0.1:{first} offers {NQN}")
    with report.test("xio against Linux's target: 16 MiB read by each of two ports"):
        for port in target.ports:
            programs.run_xio("verify", url(port, READ_NSID), "--against", str(target.data))
    with report.test("xio against Linux's target: what xio bench writes is what the guest then has"):
        options = ("--rw", "write", "--bs", "128k", "--size", f"{SIZE_MIB}m", "--iodepth", "8", "--verify", "crc32c", "--seed", "7")
        programs.run_xio("bench", url(first, WRITE_NSID), *options)
        # The seed says every byte: to a file, the same are written.
        file = target.folder / "written"
        programs.run_xio("bench", str(file), *options)
        expect("SHA-256 of the guest's disk", target.sha256_of(WRITE_NSID), hashlib.sha256(file.read_bytes()).hexdigest())
    with report.test("initiator against Linux's target: a pattern written and read with header and data digests"):
        done = programs.run_bench(first, "--digests")
        expect("exit status, errors", (done.returncode, done.stderr), (0, ""))
    with report.test("xio against Linux's target: a port that is inaccessible (ANA) says so, the other goes on"):
        target.subsystem.set_ana_state(2, "inaccessible")
        done = programs.run(*programs.xio, "verify", url(second, READ_NSID), "--against", str(target.data))
        expect_that(f"ANA Inaccessible is reported: {done.stderr.strip()}", "3h/02h Asymmetric Access Inaccessible" in done.stderr)
        programs.run_xio("verify", url(first, READ_NSID), "--against", str(target.data))
        target.subsystem.set_ana_state(2, "optimized")
        programs.run_xio("verify", url(second, READ_NSID), "--against", str(target.data))


def test_faults(report: Report, programs: Programs, target: ForeignTarget, seed: int) -> None:
    with Proxy(("127.0.0.1", target.ports[0]), seed) as proxy:
        verify = ("verify", url(proxy.port, READ_NSID), "--against", str(target.data))
        with report.test("xio against Linux's target: with 5 ms delay each way"):
            with proxy.fault(Delay(delay_ms=5)) as delay:
                programs.run_xio(*verify)
            expect_that("every piece was delayed", delay.acted == delay.met > 0)
        with report.test(f"xio against Linux's target: a cut of {CUT_SECONDS:.0f} s in the middle of a read"), ThreadPoolExecutor(1) as pool:
            # So slow that the read has not ended when the cut begins.
            with proxy.fault(Rate(bytes_per_s=8_000_000), "server", "client"):
                reading = pool.submit(programs.run_xio, *verify)
                _wait_for_bytes(proxy)
                with proxy.fault(Cut()):
                    time.sleep(CUT_SECONDS)
                    expect_that("the read was not over yet", not reading.done())
            reading.result()
        with report.test("xio against Linux's target: a connection that is reset in the middle of xio cp is made again"):
            connections = proxy.count.connections
            copy = target.folder / "copy"
            with proxy.fault(Rate(bytes_per_s=DATASET_BYTES_PER_S), "server", "client"), ThreadPoolExecutor(1) as pool:
                copying = pool.submit(programs.run_xio, "cp", url(proxy.port, DATASET_NSID), str(copy))
                _wait_for_bytes(proxy)
                connections = proxy.count.connections - connections
                expect("connections that were reset", proxy.reset(), connections)
                expect_that("the copy was not over yet", not copying.done())
                copying.result()
            programs.run_xio("diff", str(copy), str(DATASET), "--attributes")
        # The middle of a full piece is data: what is asked for before is smaller, and headers lie at a command's begin.
        fault = Corrupt(count=1, offset=PIECE_BYTES_MAX // 2)
        with report.test("xio against Linux's target: without digests a corrupt byte arrives, and xio verify names its place"):
            with proxy.fault(fault, "server", "client", when=_is_full) as corruption:
                done = programs.run(*programs.xio, *verify)
            expect("corrupt pieces, exit status", (corruption.acted, done.returncode), (1, 1))
            expect_that(f"the place is named: {done.stderr.strip()}", ": presented byte " in done.stderr)
        with report.test("initiator against Linux's target: with digests a corrupt byte is a Transient Transport Error"):
            with proxy.fault(fault, "server", "client", when=_is_full) as corruption:
                done = programs.run_bench(proxy.port, "--digests")
            expect("corrupt pieces, exit status", (corruption.acted, done.returncode), (1, 1))
            expect_that(f"the status is a digest's: {done.stderr.strip()}", "0h/22h Transient Transport Error" in done.stderr)


def _is_full(piece: bytes) -> bool:
    return len(piece) == PIECE_BYTES_MAX


def _wait_for_bytes(proxy: Proxy) -> None:
    before = proxy.count.server_bytes
    wait_for("the transfer is under way", lambda: proxy.count.server_bytes > before + BYTES_BEFORE, SECONDS_MAX)
