"""Our store against Linux's own target (nvmet-rdma, nvmet-tcp) in guest b."""

from __future__ import annotations

import time

from lab.nvmet import LinuxSubsystem, add_ramdisks
from lab.pair import Pair

from .rdma_faults import FarEnd, test_breaks, test_faults
from .rdma_figures import Figures
from .rdma_store import BLOCKS_NSID, REMOTE_NQN, SERVICE, VOLUME_NSID, Store, test_volume, url
from .report import Report, expect_that

DISK_MIB = 32
WHO = "Linux's target"
TCP_PORT_ID, TCP_SERVICE = 3, 4430


def prepare(pair: Pair) -> LinuxSubsystem:
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
    return subsystem


def tests(report: Report, store: Store, subsystem: LinuxSubsystem, figures: Figures) -> None:
    """Its ports are closed at the end."""
    pair = store.pair

    def end() -> None:
        subsystem.stop_listening(1)
        time.sleep(1)
        subsystem.listen(1, "rdma", pair.b.ipv4, SERVICE)

    test_tcp(report, store, subsystem)
    test_errors(report, store)
    for family in ("ipv4", "ipv6"):
        with report.test(f"a store over RoCE ({family}) from {WHO}: 8 MiB written and read, the target's disk has them"):
            with store.served(url(pair.b.address(family))):
                store.expect_transfer()
    with report.test(f"a store over RoCE from {WHO}: figures"):
        figures.add_store(store, WHO)
    test_faults(report, store, FarEnd(WHO, url(pair.b.ipv4), end))
    test_paths(report, store, subsystem)
    test_volume(report, store, WHO)
    for port_id in (1, 2):
        subsystem.stop_listening(port_id)


def test_tcp(report: Report, store: Store, subsystem: LinuxSubsystem) -> None:
    """The same store over TCP."""
    pair = store.pair

    def listen() -> None:
        subsystem.listen(TCP_PORT_ID, "tcp", pair.b.ipv4, TCP_SERVICE)

    def end() -> None:
        subsystem.stop_listening(TCP_PORT_ID)
        time.sleep(1)
        listen()

    def where(digests: str) -> str:
        return url(pair.b.ipv4, more=f"&digests={digests}", transport="tcp", service=TCP_SERVICE)

    listen()
    for digests in ("none", "data", "both"):
        with report.test(f"a store over TCP from {WHO}, digests={digests}: 8 MiB written and read, the target's disk has them"):
            with store.served(where(digests)):
                store.expect_transfer()
    test_breaks(report, store, FarEnd(WHO, where("data"), end))
    subsystem.stop_listening(TCP_PORT_ID)


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


def test_paths(report: Report, store: Store, subsystem: LinuxSubsystem) -> None:
    pair = store.pair
    with report.test("a store over RoCE with two paths: one is inaccessible (ANA), then the other; reads and writes go on"):
        with store.served(url(pair.b.ipv4, pair.b.ipv6)):
            store.expect_transfer()
            for away, back in ((1, 2), (2, 1)):
                subsystem.set_ana_state(back, "optimized")
                subsystem.set_ana_state(away, "inaccessible")
                started = time.monotonic()
                store.expect_transfer()
                print(f"        port {away} inaccessible: written and read in {time.monotonic() - started:.1f} s", flush=True)
            subsystem.set_ana_state(2, "optimized")
    with report.test("a store over RoCE whose paths a discovery service names"):
        with store.served(url(pair.b.ipv4, more="&paths=discovered")):
            store.expect_transfer()
