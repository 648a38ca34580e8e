"""Linux against Linux over the test's own network: what our ends, which replace one of the two each, are held against."""

from __future__ import annotations

import hashlib
import re
import shlex
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random

from lab.guest import GuestError
from lab.network.faults import Corrupt, Cut, Delay, Drop
from lab.network.frames import is_roce, is_tcp
from lab.nvmet import LinuxSubsystem, add_ramdisks
from lab.pair import Machine, Pair

from .report import Report, Unexpected, expect, expect_that, wait_for

NQN = "nqn.2014-08.org.nvmexpress:xio-lab-pair"
SERVICE = 4420
SIZE_BYTES = 16 << 20
# What dd reads and writes at once.
BLOCK_BYTES = 128 << 10
# How many transfers there are at most, each of them one block further on in the data.
PARTS = 16
CUT_SECONDS = 3.0
# Whose ends they are, in the names of tests.
KERNELS = "kernel against kernel"
# What goes over the wire before the cut, so that it is in the middle of the transfer.
BYTES_BEFORE_CUT = 4 << 20
# A reconnect after the cut, and what is tried again by then.
TRANSFER_SECONDS_MAX = 90.0
LISTEN_SECONDS_MAX = 20.0
# From so much payload on a frame is of a transfer, and not of a connect: of an NVMe/TCP Connect with a wrong digest Linux's host hears
# nothing for 60 s.
TRANSFER_BYTES_MIN = {"rdma": 4096, "tcp": 4400}
TRANSPORTS: dict[str, Callable[[int], Callable[[bytes], bool]]] = {
    "rdma": is_roce,
    "tcp": lambda payload_bytes_min: is_tcp(SERVICE, payload_bytes_min),
}


def test_reach(report: Report, pair: Pair) -> None:
    for family, ether_type in (("ipv4", b"\x08\x00"), ("ipv6", b"\x86\xdd")):
        address = pair.a.address(family)
        with report.test(f"{family}: ping, in packets that fill the MTU"):
            printed = pair.b.do(f"ping -c 1 -s 4400 {address}")
            expect("replies", re.findall(r"\d+ packets received", printed), ["1 packets received"])
        # Nothing is done to what it counts.
        counted = Delay(delay_ms=0)
        with pair.switch.fault(counted, when=lambda frame: is_roce()(frame) and frame[12:14] == ether_type) as roce:
            with report.test(f"{family}: rping"):
                with running_server(pair.a, f"rping -s -V -C 20 -S 4000 -a {'::' if family == 'ipv6' else '0.0.0.0'}", 7174):
                    pair.b.do(f"rping -c -V -C 20 -S 4000 -a {address}")
                # An RDMA read, an RDMA write and two messages each, and their acknowledgements.
                expect_that(f"at least 120 frames were RoCE over {family}, but {roce.met}", roce.met >= 120)
            with report.test(f"{family}: ib_send_bw"):
                command = "ib_send_bw -R -d rxe0 -s 65536 -n 200" + (" --ipv6-addr" if family == "ipv6" else "")
                before = roce.met
                with running_server(pair.a, command, 18515):
                    printed = pair.b.do(f"{command} {address}")
                figures = re.findall(r"^ *65536 +200 +[\d.]+ +([\d.]+) ", printed, re.MULTILINE)
                expect("lines of figures", len(figures), 1)
                expect_that("its data were RoCE over this family", roce.met - before >= 200 * 65536 // 4096)
                print(f"        ib_send_bw over {family}: {figures[0]} MiB/s", flush=True)


@contextmanager
def running_server(machine: Machine, command: str, port: int) -> Iterator[None]:
    """Runs in the guest until its one client has gone, and must end well; it listens before the block begins."""
    machine.do(f"(status=0; {command} >/tmp/server.log 2>&1 || status=$?; echo $status >/tmp/server.status) &")

    def listens() -> bool:
        return f":{port}" in machine.do("rdma resource show cm_id | grep LISTEN || true")

    wait_for(f"{shlex.split(command)[0]} listens on port {port}", listens, LISTEN_SECONDS_MAX)
    try:
        yield
    except (Unexpected, GuestError):
        # Nothing of it is left to the next one. What went wrong first is what is told.
        with suppress(Unexpected, GuestError):
            _wait_for_end(machine)
            machine.do("rm /tmp/server.status")
        raise
    _wait_for_end(machine)
    status, log = machine.do("cat /tmp/server.status /tmp/server.log; rm /tmp/server.status").split("\n", 1)
    expect(f"the server's exit status (it says: {log.strip()[-300:]})", status, "0")


def _wait_for_end(machine: Machine) -> None:
    wait_for("the server has ended", lambda: machine.run("[ -s /tmp/server.status ]").status == 0, LISTEN_SECONDS_MAX)


@dataclass
class LinuxHost:
    """The kernel's host in guest b, connected to the kernel's target in guest a."""

    pair: Pair
    transport: str
    # Which part of the data is transferred: another for each test, so that what one has written is not taken for the next one's.
    part: int

    @contextmanager
    def connected(self, family: str = "ipv4", options: str = "") -> Iterator[None]:
        """One I/O queue; a lost controller is tried again every second, for ever."""
        address = self.pair.a.address(family)
        self.pair.a.do("dmesg -c >/dev/null")
        self.do(
            f"modprobe nvme_{self.transport} && dmesg -c >/dev/null && timeout 30 nvme connect -t {self.transport} -a {address} -s {SERVICE} -n {NQN} "
            f"--nr-io-queues=1 --keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=-1 {options}"
        )
        try:
            wait_for("the disk is there", lambda: self.pair.b.run("[ -b /dev/nvme0n1 ]").status == 0, LISTEN_SECONDS_MAX)
            yield
        finally:
            self.do(f"nvme disconnect -n {NQN}")

    def do(self, script: str, timeout_s: float = TRANSFER_SECONDS_MAX) -> str:
        return self.pair.b.do(script, timeout_s)

    def wanted(self) -> str:
        """SHA-256 of its part, computed on the build machine."""
        start = self.part * BLOCK_BYTES
        return hashlib.sha256(_data(self.pair.seed)[start : start + SIZE_BYTES]).hexdigest()

    def write(self) -> None:
        blocks = f"skip={self.part} count={SIZE_BYTES // BLOCK_BYTES}"
        self.do(f"dd if=/tmp/data of=/dev/nvme0n1 bs={BLOCK_BYTES} {blocks} oflag=direct conv=fsync")

    def read(self) -> str:
        """SHA-256 of what it reads."""
        self.do(f"dd if=/dev/nvme0n1 of=/tmp/back bs={BLOCK_BYTES} count={SIZE_BYTES // BLOCK_BYTES} iflag=direct")
        return self.do("sha256sum </tmp/back").split()[0]

    def on_target(self) -> str:
        """SHA-256 of what the target's own disk holds, read in its guest, past a page cache that knows nothing of the target's writes."""
        return self.pair.a.do(f"dd if=/dev/ram0 bs=1M count={SIZE_BYTES >> 20} iflag=direct 2>/dev/null | sha256sum").split()[0]

    def expect_transfer(self) -> None:
        self.write()
        self.expect_on_disk()

    def expect_on_disk(self) -> None:
        expect("SHA-256 of the target's disk", self.on_target(), self.wanted())
        expect("SHA-256 of what was read", self.read(), self.wanted())

    def state(self) -> str:
        return self.do("cat /sys/class/nvme/nvme0/state").strip()

    def said(self, pattern: str) -> int:
        """Lines of its kernel's log since it was connected."""
        return _said(self.pair.b, pattern)

    def expect_no_errors(self) -> None:
        expect("errors in the kernel's log", self.said("I/O error|critical [a-z]+ error"), 0)


def _said(machine: Machine, pattern: str) -> int:
    return int(machine.do(f"dmesg | grep -cE {shlex.quote(pattern)} || true"))


def _data(seed: int) -> bytes:
    return Random(seed).randbytes(SIZE_BYTES + PARTS * BLOCK_BYTES)


def prepare(pair: Pair) -> None:
    """In guest a: /dev/ram0 over both transports, at both addresses. In guest b: the data."""
    make_data(pair)
    add_ramdisks(pair.a.guest, 1, SIZE_BYTES >> 20)
    target = LinuxSubsystem(pair.a.guest, NQN)
    target.add_namespace(1, "/dev/ram0")
    ways = [(transport, address) for transport in TRANSPORTS for address in (pair.a.ipv4, pair.a.ipv6)]
    for port_id, (transport, address) in enumerate(ways, start=1):
        target.listen(port_id, transport, address, SERVICE)


def make_data(pair: Pair) -> None:
    """In guest b: /tmp/data, from Python's generator, no kernel's work."""
    make = f"random.Random({pair.seed}).randbytes({SIZE_BYTES + PARTS * BLOCK_BYTES})"
    pair.b.do(f"python3 -c 'import random, sys; sys.stdout.buffer.write({make})' >/tmp/data")


def test_transfers(report: Report, pair: Pair, transport: str, parts: Iterator[int], who: str = KERNELS) -> None:
    """16 MiB written and read back, each time other bytes."""
    switch = pair.switch
    what = f"nvme-{transport}, {who}"
    with report.test(f"{what}: 16 MiB over IPv6"):
        host = LinuxHost(pair, transport, next(parts))
        with host.connected("ipv6"):
            host.expect_transfer()
            host.expect_no_errors()
    with report.test(f"{what}: with 0.1 % of the frames lost"):
        host = LinuxHost(pair, transport, next(parts))
        with host.connected(), switch.fault(Drop(probability=0.001), when=TRANSPORTS[transport](0)) as loss:
            host.expect_transfer()
            host.expect_no_errors()
        expect_that(f"frames were lost: {loss.acted} of {loss.met}", loss.acted > 0)
        print(f"        {loss.acted} of {loss.met} frames lost", flush=True)
    with report.test(f"{what}: with 5 ms delay each way"):
        host = LinuxHost(pair, transport, next(parts))
        with host.connected(), switch.fault(Delay(delay_ms=5)) as delay:
            started = time.monotonic()
            host.expect_transfer()
            # Each of dd's blocks is a round trip at least.
            least_s = 2 * (SIZE_BYTES // BLOCK_BYTES) * 0.010
            expect_that(f"the delay was felt: {least_s} s at least", time.monotonic() - started > least_s)
            host.expect_no_errors()
        expect_that("every frame was delayed", delay.acted == delay.met > 0)


def test_cut(report: Report, pair: Pair, transport: str, parts: Iterator[int], who: str = KERNELS) -> None:
    with report.test(f"nvme-{transport}, {who}: the wire is cut for {CUT_SECONDS:.0f} s in the middle of a transfer"):
        host = LinuxHost(pair, transport, next(parts))
        with host.connected(), ThreadPoolExecutor(1) as pool:
            received = pair.switch.counts["b"].received_bytes
            writing = pool.submit(host.write)
            wait_for(
                "the transfer is under way",
                lambda: pair.switch.counts["b"].received_bytes > received + BYTES_BEFORE_CUT,
                TRANSFER_SECONDS_MAX,
            )
            with pair.switch.fault(Cut()) as cut:
                time.sleep(CUT_SECONDS)
                expect_that("the transfer was not over yet", not writing.done())
            writing.result()
            host.expect_on_disk()
            expect("the controller's state", host.state(), "live")
            host.expect_no_errors()
            expect_that("frames were lost", cut.acted > 0)
            print(f"        {cut.acted} frames lost, {host.said('Successfully reconnected')} reconnects", flush=True)


def test_corruption(report: Report, pair: Pair, transport: str, parts: Iterator[int], who: str = KERNELS) -> None:
    """Of five frames with data one byte is another, with a right checksum: what lies above UDP and TCP has to catch it."""
    data = TRANSPORTS[transport](TRANSFER_BYTES_MIN[transport])
    with report.test(f"nvme-{transport}, {who}: no corrupt frame is taken for data"):
        host = LinuxHost(pair, transport, next(parts))
        with host.connected(options="--hdr-digest --data-digest" if transport == "tcp" else ""):
            with pair.switch.fault(Corrupt(probability=0.01, count=5), when=data) as corruption:
                host.expect_transfer()
            expect("corrupt frames", corruption.acted, 5)
            host.expect_no_errors()
            if transport == "tcp":
                caught = host.said("digest error") + _said(pair.a, "digest error")
                expect_that("one of the kernels reports a digest error", caught > 0)
    if transport == "tcp":
        with report.test("nvme-tcp, kernel against kernel: without digests a corrupt byte arrives, so the test's frames reach the receiver"):
            host = LinuxHost(pair, transport, next(parts))
            with host.connected():
                host.write()
                # Far behind any header: an NVMe/TCP PDU of 128 KiB is many frames.
                with pair.switch.fault(Corrupt(count=1, offset=500), "a", "b", when=data) as corruption:
                    host.read()
                expect("corrupt frames", corruption.acted, 1)
                differ = host.do(f"tail -c +{1 + host.part * BLOCK_BYTES} /tmp/data | cmp -l -n {SIZE_BYTES} - /tmp/back | wc -l").strip()
                expect("bytes that differ", differ, "1")
