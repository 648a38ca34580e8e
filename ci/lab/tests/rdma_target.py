"""Linux's host in guest b against snap-target's RDMA listeners in guest a: what `baseline` shows of Linux against Linux, and what only our target has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lab.network.faults import Cut, Delay
from lab.network.frames import is_roce, segment
from lab.nvmet import add_ramdisks
from lab.pair import Pair

from . import baseline
from .baseline import NQN, SERVICE, SIZE_BYTES, LinuxHost
from .report import Report, Unexpected, expect, expect_that, wait_for

WHO = "Linux's host against snap-target"
CONFIG, SOCKET, LOG, PID = "/tmp/snap-target.toml", "/tmp/snap-target.sock", "/tmp/snap-target.log", "/tmp/snap-target.pid"
START_SECONDS_MAX = 60.0
RECONNECT_SECONDS_MAX = 90.0
PARTS = 16
LOST_SECONDS = 15.0
# "RDMA READ Request" of a reliable connection (InfiniBand, base transport header).
RDMA_READ_REQUEST = 0x0C


def lay_out(share: Path, programs: Sequence[Path]) -> None:
    """The programs, with the guests' own C library: they open RDMA's libraries there."""
    share.mkdir()
    for program in programs:
        shutil.copy(program, share / program.name)
        # Symbols are most of it, and the guests read it through a narrow door.
        subprocess.run(["strip", str(share / program.name)], check=True)


@dataclass
class Target:
    """snap-target in guest a: /dev/ram0 over RDMA at both addresses, and over TCP at one of them."""

    pair: Pair

    def prepare(self) -> None:
        add_ramdisks(self.pair.a.guest, 1, SIZE_BYTES >> 20)
        listeners = "".join(
            f'[[listener]]\ntransport = "{transport}"\naddress = "{address}:{SERVICE}"\n'
            for transport, address in (("rdma", self.pair.a.ipv4), ("rdma", f"[{self.pair.a.ipv6}]"), ("tcp", self.pair.a.ipv4))
        )
        subsystem = f'[[subsystem]]\nnqn = "{NQN}"\nallow-any-host = true\n[[subsystem.namespace]]\nstore = "file:/dev/ram0"\n'
        config = f'[target]\nstart = "all"\n{listeners}{subsystem}[admin]\nsocket = "{SOCKET}"\n'
        self.do(f"cat >{CONFIG} <<'END'\n{config}END\n")
        self.start()
        for address in (self.pair.a.ipv4, self.pair.a.ipv6):
            # The first packets wait for each other's hardware address.
            self.pair.b.do(f"ping -c 1 {address}")

    def start(self) -> None:
        self.do(f": >{LOG}; ulimit -l unlimited; /share/snap-target --config {CONFIG} >{LOG} 2>&1 & echo $! >{PID}")

        def is_ready() -> bool:
            if self.pair.a.run(f"kill -0 $(cat {PID})").status != 0:
                raise Unexpected(f"snap-target has ended: {self.said()}")
            return self.pair.a.run(f"grep -q ^ready {LOG}").status == 0

        wait_for("snap-target is ready", is_ready, START_SECONDS_MAX)

    def kill(self) -> None:
        """As a fault would, with no word to anybody."""
        self.do(f"kill -9 $(cat {PID}); while [ -d /proc/$(cat {PID})/fd ]; do sleep 0.1; done")

    def stop(self) -> None:
        self.do(f"kill $(cat {PID}); while [ -d /proc/$(cat {PID})/fd ]; do sleep 0.1; done")
        if "panicked" in (said := self.said()):
            raise Unexpected(f"snap-target panicked: {said}")

    def said(self) -> str:
        return self.pair.a.run(f"tail -n 20 {LOG}").output

    def snapctl(self, words: str) -> str:
        return self.do(f"XIO_ADMIN_SOCKET={SOCKET} /share/snapctl {words}")

    def do(self, script: str) -> str:
        return self.pair.a.do(script, START_SECONDS_MAX)


def tests(report: Report, pair: Pair) -> None:
    target = Target(pair)
    baseline.make_data(pair)
    target.prepare()
    try:
        parts = iter(range(PARTS))
        test_discovery(report, target)
        test_queues(report, target, parts)
        baseline.test_transfers(report, pair, "rdma", parts, WHO)
        test_capsules(report, target, parts)
        test_file_system(report, target)
        test_namespaces(report, target)
        test_transports(report, target)
        baseline.test_cut(report, pair, "rdma", parts, WHO)
        test_lost(report, target, parts)
        test_killed(report, target, parts)
        baseline.test_corruption(report, pair, "rdma", parts, WHO)
    finally:
        target.stop()


def test_discovery(report: Report, target: Target) -> None:
    pair = target.pair
    with report.test(f"{WHO}: discovery over RDMA names every listener with its transport"):
        printed = pair.b.do(f"modprobe nvme_rdma && timeout 60 nvme discover -t rdma -a {pair.a.ipv4} -s {SERVICE}")
        records = [dict(re.findall(r"^(\w+):\s+(.*?)\s*$", record, re.MULTILINE)) for record in printed.split("=====")[1:]]
        found = {(it["trtype"], it["adrfam"], it["traddr"], it["trsvcid"]) for it in records if it.get("subnqn") == NQN}
        service = str(SERVICE)
        wanted = {("rdma", "ipv4", pair.a.ipv4, service), ("rdma", "ipv6", pair.a.ipv6, service), ("tcp", "ipv4", pair.a.ipv4, service)}
        expect("records", found, wanted)
    with report.test("snapctl shows the listeners; doctor finds RDMA usable"):
        listed = json.loads(target.snapctl("--json listener list"))["listeners"]
        expect("transports", [it["transport"] for it in listed], ["TRANSPORT_RDMA", "TRANSPORT_RDMA", "TRANSPORT_TCP"])
        printed = pair.a.run(f"/share/snapctl doctor --listen-rdma {pair.a.ipv4}:4421 --listen-rdma {pair.a.ipv4}:{SERVICE} --listen-rdma 198.51.100.1:4420").output
        for line in (r"ok +RDMA +rxe0 \(4: ACTIVE\)", rf"ok +listen rdma://{pair.a.ipv4}:4421 +free", rf"warn +listen rdma://{pair.a.ipv4}:{SERVICE} ", "FAIL +listen rdma://198.51.100.1:4420 "):
            expect_that(f"{line!r} is said: {printed}", re.search(line, printed) is not None)


def test_queues(report: Report, target: Target, parts: Iterator[int]) -> None:
    # With both, on a single processor, this kernel's host asks for a queue that it cannot run on any.
    for options in ("--nr-write-queues=1", "--nr-poll-queues=1"):
        with report.test(f"{WHO}: two I/O queues ({options}), 16 MiB written and read through them"):
            host = LinuxHost(target.pair, "rdma", next(parts))
            with host.connected(options=options):
                expect("queues, the admin queue among them", host.do("cat /sys/class/nvme/nvme0/queue_count").strip(), "3")
                host.expect_transfer()
                host.expect_no_errors()


def test_capsules(report: Report, target: Target, parts: Iterator[int]) -> None:
    """What fits the capsule comes in it: the target asks for nothing."""
    pair = target.pair

    def is_read_request(frame: bytes) -> bool:
        found = segment(frame) if is_roce()(frame) else None
        return found is not None and frame[found.payload] & 0x1F == RDMA_READ_REQUEST

    # Nothing is done to what it counts.
    with report.test(f"{WHO}: writes of 4 KiB come in their capsules, those of 128 KiB by RDMA READ"):
        host = LinuxHost(pair, "rdma", next(parts))
        with host.connected(), pair.switch.fault(Delay(delay_ms=0), "a", "b", when=is_read_request) as asked:
            skip = host.part * baseline.BLOCK_BYTES // 4096
            host.do(f"dd if=/tmp/data of=/dev/nvme0n1 bs=4096 skip={skip} count=512 oflag=direct conv=fsync 2>&1")
            expect("RDMA READs for 4 KiB", asked.met, 0)
            host.write()
            expect_that(f"{asked.met} RDMA READs for {SIZE_BYTES // baseline.BLOCK_BYTES} writes", asked.met >= SIZE_BYTES // baseline.BLOCK_BYTES)
            host.expect_on_disk()
            host.expect_no_errors()


def test_file_system(report: Report, target: Target) -> None:
    with report.test(f"{WHO}: ext4 is made, mounted, filled, checked"):
        host = LinuxHost(target.pair, "rdma", 0)
        with host.connected():
            host.do("modprobe ext4; mkfs.ext4 -q -F /dev/nvme0n1 && mkdir -p /mnt/disk && mount /dev/nvme0n1 /mnt/disk")
            host.do("head -c 4000000 /tmp/data >/mnt/disk/file && sync && umount /mnt/disk && e2fsck -f -n /dev/nvme0n1")
            host.do("mount -o ro /dev/nvme0n1 /mnt/disk && head -c 4000000 /tmp/data | cmp - /mnt/disk/file && umount /mnt/disk")
            host.expect_no_errors()


def test_namespaces(report: Report, target: Target) -> None:
    with report.test(f"{WHO}: a namespace that is attached while it is connected appears, and goes when it is detached"):
        host = LinuxHost(target.pair, "rdma", 0)
        with host.connected():
            target.snapctl(f"namespace attach {NQN} mem:4MiB --nsid 2")
            wait_for("the host sees it", lambda: host.do("cat /sys/block/nvme0n2/size 2>/dev/null || true").strip() == "8192", START_SECONDS_MAX)
            target.snapctl(f"namespace detach {NQN} 2")
            wait_for("it is gone", lambda: host.do("ls /sys/block").split().count("nvme0n2") == 0, START_SECONDS_MAX)


def test_transports(report: Report, target: Target) -> None:
    """One desk: a controller over each transport, of one subsystem."""
    pair = target.pair
    with report.test(f"{WHO}: over RDMA and TCP at once, two controllers of one subsystem, one disk"):
        host = LinuxHost(pair, "rdma", 0)
        with host.connected():
            host.do(f"modprobe nvme_tcp && timeout 60 nvme connect -t tcp -a {pair.a.ipv4} -s {SERVICE} -n {NQN} --nr-io-queues=1 --duplicate-connect")
            controllers = json.loads(target.snapctl("--json controller list"))["controllers"]
            expect("transports", sorted(it["transport"] for it in controllers), ["TRANSPORT_RDMA", "TRANSPORT_TCP"])
            expect("different CNTLIDs", len({it["cntlid"] for it in controllers}), 2)
            counted = {it["transport"]: it["connections"] for it in json.loads(target.snapctl("--json listener list"))["listeners"] if it["connections"]}
            expect("connections, by listener", counted, {"TRANSPORT_RDMA": 2, "TRANSPORT_TCP": 2})


def test_lost(report: Report, target: Target, parts: Iterator[int]) -> None:
    """Longer than queue pairs try, and than the host's keep-alive timer waits: both ends give the connection up."""
    pair = target.pair
    with report.test(f"{WHO}: the wire is cut for {LOST_SECONDS:.0f} s in the middle of a write; the host connects again"):
        host = LinuxHost(pair, "rdma", next(parts))
        with host.connected(), ThreadPoolExecutor(1) as pool:
            received = pair.switch.counts["b"].received_bytes
            writing = pool.submit(host.write)
            wait_for("the write is under way", lambda: pair.switch.counts["b"].received_bytes > received + baseline.BYTES_BEFORE_CUT, RECONNECT_SECONDS_MAX)
            with pair.switch.fault(Cut()):
                time.sleep(LOST_SECONDS)
                expect_that("the write was not over yet", not writing.done())
            healed = time.monotonic()
            writing.result()
            print(f"        the write ended {time.monotonic() - healed:.1f} s after the wire was whole", flush=True)
            host.expect_on_disk()
            expect_that("the host has connected again", host.said("Successfully reconnected") >= 1)
            host.expect_no_errors()
            wait_for("the target has one controller", lambda: len(json.loads(target.snapctl("--json controller list"))["controllers"]) == 1, START_SECONDS_MAX)


def test_killed(report: Report, target: Target, parts: Iterator[int]) -> None:
    pair = target.pair
    with report.test(f"{WHO}: kill -9 of the daemon in the middle of a write, and another one"):
        host = LinuxHost(pair, "rdma", next(parts))
        with host.connected(), ThreadPoolExecutor(1) as pool:
            # So that there is a middle.
            with pair.switch.fault(Delay(delay_ms=5)):
                received = pair.switch.counts["b"].received_bytes
                writing = pool.submit(host.write)
                wait_for("the write is under way", lambda: pair.switch.counts["b"].received_bytes > received + baseline.BYTES_BEFORE_CUT, RECONNECT_SECONDS_MAX)
                target.kill()
                expect_that("the write was not over yet", not writing.done())
            started = time.monotonic()
            target.start()
            writing.result()
            print(f"        the write ended {time.monotonic() - started:.1f} s after the start of the other daemon", flush=True)
            host.expect_on_disk()
            expect("the controller's state", host.state(), "live")
            host.expect_no_errors()
