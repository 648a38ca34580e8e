"""A store over RoCE: snap-target in guest a reads and writes a namespace of guest b, and Linux's host, in guest a too, has it as a disk over NVMe/TCP.

In guest b stands Linux's own target (nvmet-rdma), and then another snap-target. Guests whose network the test breaks; what is written is compared on the disk of b, past every cache.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from lab.guest import Result
from lab.network.faults import Corrupt, Cut, Delay, Drop, Duplicate, Fault, Reorder
from lab.network.frames import is_roce
from lab.nvmet import LinuxSubsystem, add_ramdisks
from lab.pair import Pair

from .baseline import running_server
from .nfs import digests_of_files
from .report import Report, Unexpected, expect, expect_that, wait_for
from .volumes import FIXTURES

REMOTE_NQN = "nqn.2014-08.org.nvmexpress:xio-lab-store"
LOCAL_NQN = "nqn.2026-11.io.xio:lab"
SERVICE = 4420
BLOCKS_NSID, VOLUME_NSID = 1, 2
BLOCK_BYTES = 128 << 10
SIZE_BYTES = 8 << 20
DISK_MIB = 32
PARTS = 32
LOG, PID = "/tmp/snap-target.log", "/tmp/snap-target.pid"
# Of the one in guest b.
TARGET_CONFIG, TARGET_LOG, TARGET_PID = "/tmp/target.toml", "/tmp/target.log", "/tmp/target.pid"
START_SECONDS_MAX = 30.0
TRANSFER_SECONDS_MAX = 120.0
CUT_SECONDS = 3.0
BYTES_BEFORE_FAULT = 2 << 20
# RoCE packets with data, not those that connect.
DATA_BYTES_MIN = 1024


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
    subsystem: LinuxSubsystem
    parts: Iterator[int]
    part: int = 0

    def next_part(self) -> None:
        """Other bytes than before, so that what an earlier test wrote is not taken for this one's."""
        self.part = next(self.parts)

    def start(self, *stores: str) -> None:
        self.do(
            f": >{LOG}; ulimit -l unlimited; /share/snap-target {' '.join(stores)} --listen 127.0.0.1:{SERVICE} --nqn {LOCAL_NQN} >{LOG} 2>&1 & echo $! >{PID}"
        )

        def is_ready() -> bool:
            if self.run(f"kill -0 $(cat {PID})").status != 0:
                raise Unexpected(f"snap-target has ended: {self.said()}")
            return self.run(f"grep -q ^ready {LOG}").status == 0

        wait_for("snap-target is ready", is_ready, START_SECONDS_MAX)

    @contextmanager
    def served(self, *stores: str) -> Iterator[None]:
        """Served, and connected to by the kernel's host, which gives nothing up."""
        self.start(*stores)
        try:
            self.do(f"modprobe nvme_tcp && dmesg -c >/dev/null && timeout 60 nvme connect -t tcp -a 127.0.0.1 -s {SERVICE} -n {LOCAL_NQN} --nr-io-queues=1 --ctrl-loss-tmo=-1")
            wait_for("the disk is there", lambda: self.run("[ -b /dev/nvme0n1 ]").status == 0, START_SECONDS_MAX)
            yield
            # No operation passes its deadline of 25 s.
            expect("commands that failed", self.do(f"grep -c 'a command failed' {LOG} || true").strip(), "0")
            expect("errors in the kernel's log", self.do("dmesg | grep -cE 'I/O error|critical [a-z]+ error' || true").strip(), "0")
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


def url(*addresses: str, nsid: int = BLOCKS_NSID, more: str = "") -> str:
    hosts = ",".join(f"[{address}]" if ":" in address else address for address in addresses)
    return f"'nvme+rdma://{hosts}/{REMOTE_NQN}?nsid={nsid}{more}'"


def prepare(pair: Pair) -> Store:
    """In guest b: /dev/ram0 for bytes, /dev/ram1 with the packed dataset, at both addresses over RDMA."""
    add_ramdisks(pair.b.guest, 2, DISK_MIB)
    pair.b.do("dd if=/share/dataset.xio of=/dev/ram1 bs=1M oflag=direct conv=fsync 2>/dev/null")
    subsystem = LinuxSubsystem(pair.b.guest, REMOTE_NQN)
    subsystem.add_namespace(BLOCKS_NSID, "/dev/ram0")
    subsystem.add_namespace(VOLUME_NSID, "/dev/ram1")
    for port_id, address in enumerate((pair.b.ipv4, pair.b.ipv6), start=1):
        subsystem.listen(port_id, "rdma", address, SERVICE)
        # The first packets wait for each other's hardware address.
        pair.a.do(f"ping -c 1 {address}")
    return Store(pair, subsystem, iter(range(PARTS)))


def test_figures(report: Report, pair: Pair) -> None:
    with report.test("the link's own figures, by perftest"):
        for command in ("ib_read_bw", "ib_send_bw"):
            asked = f"{command} -R -d rxe0 -s 131072 -n 100"
            with running_server(pair.b, asked, 18515):
                printed = pair.a.do(f"{asked} {pair.b.ipv4}")
            figures = re.findall(r"^ *131072 +100 +[\d.]+ +([\d.]+) ", printed, re.MULTILINE)
            expect("lines of figures", len(figures), 1)
            print(f"        {command}, 128 KiB: {figures[0]} MiB/s", flush=True)


def test_transfers(report: Report, store: Store) -> None:
    pair = store.pair
    for family in ("ipv4", "ipv6"):
        with report.test(f"a store over RoCE ({family}): 8 MiB written and read, the target's disk has them"):
            with store.served(url(pair.b.address(family))):
                store.expect_transfer()
                _print_rates(store)
    faults: list[tuple[str, Fault]] = [
        ("0.1 % of the frames lost", Drop(probability=0.001)),
        ("5 ms delay each way", Delay(delay_ms=5)),
        ("1 % of the frames twice", Duplicate(probability=0.01)),
        ("1 % of the frames overtaken", Reorder(probability=0.01)),
        ("five frames of data with a wrong byte and a right checksum", Corrupt(probability=0.01, count=5)),
    ]
    for what, fault in faults:
        with report.test(f"a store over RoCE: {what}"):
            with store.served(url(pair.b.ipv4)), pair.switch.fault(fault, when=is_roce(DATA_BYTES_MIN)) as acting:
                store.expect_transfer()
            expect_that(f"the fault was met: {acting.acted} of {acting.met} frames", acting.acted > 0)
            print(f"        {acting.acted} of {acting.met} frames", flush=True)


def _print_rates(store: Store) -> None:
    for at_once in (1, 8):
        each = SIZE_BYTES // BLOCK_BYTES // at_once
        readers = " ".join(
            f"dd if=/dev/nvme0n1 of=/dev/null bs={BLOCK_BYTES} skip={number * each} count={each} iflag=direct 2>/dev/null &" for number in range(at_once)
        )
        started = time.monotonic()
        store.do(f"{readers} wait")
        rate = SIZE_BYTES / (time.monotonic() - started) / (1 << 20)
        print(f"        read, 128 KiB, {at_once} at once: {rate:.1f} MiB/s", flush=True)


def test_ends(report: Report, store: Store) -> None:
    """Things that end a connection, in the middle of a write of 8 MiB."""
    pair = store.pair

    def cut(*ways: str) -> Callable[[], None]:
        def act() -> None:
            with pair.switch.fault(Cut(), *ways):
                time.sleep(CUT_SECONDS)

        return act

    def kill_target() -> None:
        store.subsystem.stop_listening(1)
        time.sleep(1)
        store.subsystem.listen(1, "rdma", pair.b.ipv4, SERVICE)

    cases: Sequence[tuple[str, Callable[[], None]]] = (
        (f"the wire is cut for {CUT_SECONDS:.0f} s", cut()),
        (f"half-open for {CUT_SECONDS:.0f} s: the target is not heard", cut("b", "a")),
        ("the target ends its controllers and is back after a second", kill_target),
    )
    for what, act in cases:
        with report.test(f"a store over RoCE, in the middle of a write: {what}"):
            with store.served(url(pair.b.ipv4)), ThreadPoolExecutor(1) as pool:
                store.next_part()
                # So that there is a middle.
                with pair.switch.fault(Delay(delay_ms=5)):
                    writing = pool.submit(store.write)
                    _wait_for_bytes(store, BYTES_BEFORE_FAULT)
                    act()
                    expect_that("the write was not over yet", not writing.done())
                    over = time.monotonic()
                _wait_for_bytes(store, 1 << 20)
                print(f"        data flow again after {time.monotonic() - over:.1f} s", flush=True)
                writing.result()
                store.expect_on_disk()


def test_paths(report: Report, store: Store) -> None:
    pair = store.pair
    with report.test("a store over RoCE with two paths: one is inaccessible (ANA), then the other; reads and writes go on"):
        with store.served(url(pair.b.ipv4, pair.b.ipv6)):
            store.expect_transfer()
            for away, back in ((1, 2), (2, 1)):
                store.subsystem.set_ana_state(back, "optimized")
                store.subsystem.set_ana_state(away, "inaccessible")
                started = time.monotonic()
                store.expect_transfer()
                print(f"        port {away} inaccessible: written and read in {time.monotonic() - started:.1f} s", flush=True)
            store.subsystem.set_ana_state(2, "optimized")
    with report.test("a store over RoCE whose paths a discovery service names"):
        with store.served(url(pair.b.ipv4, more="&paths=discovered")):
            store.expect_transfer()


def test_volume(report: Report, store: Store, whose: str = "Linux's target") -> None:
    with report.test(f"three parties: a packed dataset over RoCE from {whose}, decoded in guest a: the host there mounts it, and each file has its SHA-256"):
        with store.served(f"volume:{url(store.pair.b.ipv4, nsid=VOLUME_NSID)}"):
            store.do("modprobe erofs; mkdir -p /mnt/disk && mount -t erofs -o ro /dev/nvme0n1 /mnt/disk")
            found = store.do("cd /mnt/disk && find . -type f -not -path './.xio/*' -exec sha256sum {} + && cd / && umount /mnt/disk")
            wanted = {name: digest for name, digest in digests_of_files().items() if (FIXTURES.parent / "dataset" / name).is_file()}
            expect("files", dict(reversed(line.split("  ./")) for line in found.splitlines()), wanted)
            print(f"        {len(wanted)} files", flush=True)


def test_ours(report: Report, store: Store) -> None:
    """Our store against our target: snap-target in both guests, and Linux's host beside the first as a third party."""
    pair = store.pair
    for port_id in (1, 2):
        store.subsystem.stop_listening(port_id)
    start_target = f"ulimit -l unlimited; /share/snap-target --config {TARGET_CONFIG} >{TARGET_LOG} 2>&1 & echo $! >{TARGET_PID}; until grep -q ^ready {TARGET_LOG}; do kill -0 $(cat {TARGET_PID}) || exit 1; sleep 0.1; done"
    pair.b.do(f"cat >{TARGET_CONFIG} <<'END'\n{_target_config(pair)}END\n: >{TARGET_LOG}; {start_target}")
    try:
        with report.test("our store against our target over RoCE: 8 MiB written and read, the target's disk has them"):
            with store.served(url(pair.b.ipv4)):
                store.expect_transfer()
                _print_rates(store)
        with report.test("our store against our target over RoCE: the target is killed in the middle of a write and comes back: the write goes on, every byte is right"):
            with store.served(url(pair.b.ipv4)), ThreadPoolExecutor(1) as pool:
                store.next_part()
                with pair.switch.fault(Delay(delay_ms=5)):
                    writing = pool.submit(store.write)
                    _wait_for_bytes(store, BYTES_BEFORE_FAULT)
                    pair.b.do(f"kill -9 $(cat {TARGET_PID}); : >{TARGET_LOG}; {start_target}")
                    expect_that("the write was not over yet", not writing.done())
                    over = time.monotonic()
                _wait_for_bytes(store, 1 << 20)
                print(f"        data flow again after {time.monotonic() - over:.1f} s", flush=True)
                writing.result()
                store.expect_on_disk()
        test_volume(report, store, "our target")
    finally:
        pair.b.run(f"kill $(cat {TARGET_PID})")


def _target_config(pair: Pair) -> str:
    namespaces = "".join(f'[[subsystem.namespace]]\nstore = "file:/dev/ram{disk}"\n' for disk in (0, 1))
    subsystem = f'[[subsystem]]\nnqn = "{REMOTE_NQN}"\nallow-any-host = true\n{namespaces}'
    return f'[target]\nstart = "all"\n[[listener]]\ntransport = "rdma"\naddress = "{pair.b.ipv4}:{SERVICE}"\n{subsystem}'


def _wait_for_bytes(store: Store, count: int) -> None:
    """Until so many more came from guest a."""
    counts = store.pair.switch.counts["a"]
    received = counts.received_bytes
    wait_for("data flow", lambda: counts.received_bytes > received + count, TRANSFER_SECONDS_MAX)


def test_errors(report: Report, store: Store) -> None:
    """What cannot be opened says why."""
    pair = store.pair
    cases = (
        (url(pair.b.ipv4, more="&digests=data"), "digests are NVMe/TCP's"),
        (f"'nvme+rdma://{pair.b.ipv4}:4421/{REMOTE_NQN}'", "ECONNREFUSED"),
        (f"'nvme+rdma://{pair.b.ipv4}/nqn.2014-08.org.example:none'", "nqn.2014-08.org.example:none"),
    )
    with report.test("a store over RoCE that cannot be opened says why"):
        for asked, words in cases:
            done = store.run(f"timeout 60 /share/snap-target {asked} --listen 127.0.0.1:{SERVICE} 2>&1")
            expect_that(f"it ends with an error: {done.output}", done.status not in (0, 124))
            expect_that(f"{words!r} is said: {done.output}", words in done.output)


def tests(report: Report, pair: Pair) -> None:
    store = prepare(pair)
    test_figures(report, pair)
    test_errors(report, store)
    test_transfers(report, store)
    test_ends(report, store)
    test_paths(report, store)
    test_volume(report, store)
    test_ours(report, store)
