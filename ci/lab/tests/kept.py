"""What is kept in the state folder survives kill -9: reservations, marked blocks, write protection, what SMART counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from lab.guest import Guest

from .commands import LBA_OUT_OF_RANGE, UNRECOVERED_READ_ERROR
from .host import Host
from .peers import Peer, two_peers
from .report import Report, expect, expect_that
from .reservations import (
    NAMESPACE_WRITE_PROTECTED,
    NO_WRITE_PROTECT,
    RESERVATION_CONFLICT,
    UNTIL_POWER_CYCLE,
    WRITE_EXCLUSIVE,
    WRITE_PROTECT,
    WRITE_PROTECTION,
    test_fence,
)
from .target import SnapTarget
from .volumes import Namespace

FEATURE_NOT_CHANGEABLE = 0x10E
RESERVATION_PERSISTENCE = 0x83
MARKED = 9
LIFE_COUNTERS = ("host_read_commands", "host_write_commands", "data_units_read", "data_units_written", "num_err_log_entries")

# linux/pr.h: IOC_PR_REGISTER (old key, new key, flags) and IOC_PR_RESERVE (key, type, flags). What they return is 0, -1, or a status of the device.
REGISTER = "0x401870C8, bytearray(struct.pack('QQII', 0, {key}, 0, 0))"
RESERVE = "0x401070C9, bytearray(struct.pack('QII', {key}, {rtype}, 0))"
PR_STS_RESERVATION_CONFLICT = 0x18


def test_kept(report: Report, guest: Guest, command: Sequence[str], raw_file: Namespace, folder: Path) -> None:
    """A target of its own, with a state folder. The guest is not connected before, nor afterwards."""
    disk = replace(raw_file, nsid=1)
    target = SnapTarget([*command, "--state", str(folder / "state")], [disk], folder / "kept.log")
    target.start()
    try:
        host = Host(guest, target)
        with two_peers(host, disk.nsid) as (a, b):
            _test_reservation(report, host, a, b)
            _test_marks_and_protection(report, host, a, b)
            _test_counters(report, host, a, b)
            # Here, where the kernel is not asked any more what it has complained about.
            test_fence(report, host, a, b, disk.size_bytes)
        with report.test("the target with a state folder ends on SIGTERM"):
            target.stop()
    finally:
        target.kill()
        if report.failed:
            print(f"--- the last lines of the target with a state folder:\n{target.log_tail()}")


def _restart(host: Host, *peers: Peer, end: Callable[[], object] | None = None) -> None:
    """kill -9, or another end, and both hosts are back."""
    (end or host.target.kill)()
    host.wait_for("both hosts have lost their controller", lambda: all(peer.state() != "live" for peer in peers))
    host.target.start()
    host.wait_for("both controllers are live again", lambda: all(peer.state() == "live" for peer in peers))


def _test_reservation(report: Report, host: Host, a: Peer, b: Peer) -> None:
    with report.test("Linux's own reservation calls: registered, and refused what another host holds"):
        expect("registered by nvme-cli, to be kept", a.register("--cptpl=3"), 0)
        expect("acquired", a.acquire(WRITE_EXCLUSIVE), 0)
        expect("registered by the kernel", _pr(host, b, REGISTER.format(key=b.key)), 0)
        refused = _pr(host, b, RESERVE.format(key=b.key, rtype=WRITE_EXCLUSIVE))
        expect("acquired by the kernel", refused, PR_STS_RESERVATION_CONFLICT)
        expect("feature 83h", (a.feature(RESERVATION_PERSISTENCE), b.feature(RESERVATION_PERSISTENCE)), (1, 1))
    with report.test("a reservation survives kill -9, for the same hosts"):
        before = a.report()
        expect("report", before, (WRITE_EXCLUSIVE, {a.key: True, b.key: False}))
        _restart(host, a, b)
        expect("report", b.report(), before)
        expect("who writes", (a.write(), b.write(), b.read()), (0, RESERVATION_CONFLICT, 0))
    with report.test("a reservation that was cleared does not come back after kill -9"):
        expect("cleared", b.release(0, action=1), 0)
        _restart(host, a, b)
        expect("report", a.report(), (0, {}))
        expect("who writes", (a.write(), b.write()), (0, 0))


def _pr(host: Host, peer: Peer, call: str) -> int:
    """What a reservation call on the peer's disk returns."""
    # With a mutable argument, Python gives the returned number, and not the argument.
    script = f"import fcntl, os, struct; print(fcntl.ioctl(os.open('{peer.device}', os.O_RDWR), {call}))"
    return int(host.sh(f'python3 -c "{script}"').checked())


def _test_counters(report: Report, host: Host, a: Peer, b: Peer) -> None:
    def smart(peer: Peer) -> dict[str, int]:
        return host.json(f"smart-log /dev/{peer.controller}")

    with report.test("smart-log goes on over kill -9 and over SIGTERM, the same for both hosts"):
        for end, unsafe in ((host.target.kill, 1), (host.target.stop, 0)):
            expect("read, and beyond the end", (a.read(), a.read(lba=1 << 40)), (0, LBA_OUT_OF_RANGE))
            before = smart(a)
            _restart(host, a, b, end=end)
            after = smart(b)
            expect("power_cycles", after["power_cycles"], before["power_cycles"] + 1)
            expect("unsafe_shutdowns", after["unsafe_shutdowns"], before["unsafe_shutdowns"] + unsafe)
            for counter in LIFE_COUNTERS:
                expect_that(f"{counter} goes on", after[counter] >= before[counter] > 0)


def _test_marks_and_protection(report: Report, host: Host, a: Peer, b: Peer) -> None:
    with report.test("a marked block is still unreadable after kill -9, until it is written, and stays so"):
        expect("marked", a.status_of(f"write-uncor {a.device} -s {MARKED} -c 0"), 0)
        _restart(host, a, b)
        expect("reads", (a.read(MARKED), b.read(MARKED), b.read(MARKED + 1)), (UNRECOVERED_READ_ERROR, UNRECOVERED_READ_ERROR, 0))
        expect("written", b.write(MARKED), 0)
        expect("flushed", b.status_of(f"flush {b.device}"), 0)
        _restart(host, a, b)
        expect("read", a.read(MARKED), 0)
    with report.test("write protection survives kill -9, until a host lifts it, and lifted it stays"):
        expect("set", a.protect(WRITE_PROTECT), 0)
        _restart(host, a, b)
        expect("get", b.feature(WRITE_PROTECTION), WRITE_PROTECT)
        expect("writes", (a.write(), b.write()), (NAMESPACE_WRITE_PROTECTED, NAMESPACE_WRITE_PROTECTED))
        host.wait_for("the kernel's disk is read-only", b.read_only)
        expect("lifted", b.protect(NO_WRITE_PROTECT), 0)
        _restart(host, a, b)
        expect("writes", (a.write(), b.write()), (0, 0))
    with report.test("write protection until power cycle: no host lifts it, a restart does"):
        expect("set", a.protect(UNTIL_POWER_CYCLE), 0)
        expect("lifted", a.protect(NO_WRITE_PROTECT), FEATURE_NOT_CHANGEABLE)
        expect("write", b.write(), NAMESPACE_WRITE_PROTECTED)
        _restart(host, a, b)
        expect("get", a.feature(WRITE_PROTECTION), NO_WRITE_PROTECT)
        expect("writes", (a.write(), b.write()), (0, 0))
