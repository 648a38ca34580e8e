"""Two hosts on one namespace: reservations and write protection, as nvme-cli asks for them."""

from __future__ import annotations

import re

from .host import Host
from .peers import Peer, two_peers
from .report import Report, expect, expect_that
from .volumes import Namespace

RESERVATION_CONFLICT = 0x083
HOST_ID_INCONSISTENT = 0x018
NAMESPACE_WRITE_PROTECTED = 0x020
INVALID_FIELD = 0x002
FEATURE_NOT_SAVEABLE = 0x10D
WRITE_EXCLUSIVE = 1
WRITE_EXCLUSIVE_REGISTRANTS_ONLY = 3
# fio writes for so long where nothing ends it, and so many times before it is fenced off.
FENCED_SECONDS, FENCED_WRITES = 60, 200
# Linux's errno for Command Aborted due to Preempt and Abort, and for Reservation Conflict.
EIO, EBADE = 5, 52
# Namespace Write Protection Config: the feature, and its states.
WRITE_PROTECTION = 0x84
NO_WRITE_PROTECT, WRITE_PROTECT, UNTIL_POWER_CYCLE = 0, 1, 2


def test_two_hosts(report: Report, host: Host, raw: Namespace) -> None:
    """The host is not connected before, nor afterwards."""
    with two_peers(host, raw.nsid) as (a, b):
        _test_reservations(report, a, b)
        _test_keys(report, host, a, b)
        _test_notifications(report, host, a, b)
        _test_protection(report, host, a, b)


def test_fence(report: Report, host: Host, a: Peer, b: Peer, size_bytes: int) -> None:
    """What clusters use preemption for: once it is answered, nothing of the other host's reaches the disk any more.

    The kernel logs the errors of the writes that end.
    """
    with report.test("preempt and abort under I/O: the other host's writes end, and none comes late"):
        expect("registered, acquired", (a.register(), b.register(), a.acquire(WRITE_EXCLUSIVE)), (0, 0, 0))
        host.sh(
            f"fio --name=fenced --filename={a.device} --rw=randwrite --bssplit=4k/50:64k/40:512k/10 --direct=1 --ioengine=libaio --iodepth=32 "
            f"--size=100% --time_based --runtime={FENCED_SECONDS} >/tmp/fenced 2>&1 &\necho $! >/tmp/fenced.pid"
        ).checked()
        written = f"/sys/block/{a.device[5:]}/stat"
        host.wait_for("fio writes", lambda: int(host.sh(f"cat {written}").checked().split()[4]) > FENCED_WRITES)
        expect("preempted", b.acquire(WRITE_EXCLUSIVE, action=2, preempt=a.key), 0)
        host.sh(
            f"head -c {size_bytes} /dev/urandom >/tmp/model && dd if=/tmp/model of={b.device} bs=1M oflag=direct status=none", 120
        ).checked()
        host.wait_for("fio has ended", lambda: host.sh("kill -0 $(cat /tmp/fenced.pid)").status != 0)
        ended = host.sh("cat /tmp/fenced").checked()
        expect_that(f"by an error: {ended[-600:]}", re.search(rf"err= *({EIO}|{EBADE}) ", ended) is not None)
        host.sh(f"dd if={b.device} of=/tmp/seen bs=1M iflag=direct status=none && cmp /tmp/model /tmp/seen", 120).checked()
        expect("cleared", b.release(0, action=1), 0)


def _test_reservations(report: Report, a: Peer, b: Peer) -> None:
    with report.test("two hosts register, one acquires, and the other's writes conflict"):
        expect("registered", (a.register(), b.register()), (0, 0))
        expect("acquired", a.acquire(WRITE_EXCLUSIVE), 0)
        expect("report", b.report(), (WRITE_EXCLUSIVE, {a.key: True, b.key: False}))
        expect("the holder writes", a.write(), 0)
        expect("the other does not", b.write(), RESERVATION_CONFLICT)
        expect("the other reads", b.read(), 0)
        expect("nor does it acquire", b.acquire(WRITE_EXCLUSIVE), RESERVATION_CONFLICT)
    with report.test("preempt and abort takes the reservation over"):
        expect("preempted", b.acquire(WRITE_EXCLUSIVE, action=2, preempt=a.key), 0)
        expect("report", b.report(), (WRITE_EXCLUSIVE, {b.key: True}))
        expect("who held it conflicts", a.write(), RESERVATION_CONFLICT)
        expect("who holds it writes", b.write(), 0)
        expect("released", b.release(WRITE_EXCLUSIVE), 0)
        expect("all write again", (a.write(), b.write()), (0, 0))


def _test_keys(report: Report, host: Host, a: Peer, b: Peer) -> None:
    with report.test("resv-register replaces and removes keys, of those who know them"):
        register = f"resv-register {a.device}"
        expect("registered", (a.register(), b.register()), (0, 0))
        expect("again with another key", host.status_of(f"{register} --nrkey=0xc3 --rrega=0"), RESERVATION_CONFLICT)
        expect("replaced with a wrong key", host.status_of(f"{register} --crkey=0xd4 --nrkey=0xc3 --rrega=2"), RESERVATION_CONFLICT)
        expect("replaced", host.status_of(f"{register} --crkey={a.key:#x} --nrkey=0xc3 --rrega=2"), 0)
        expect("report", b.report(), (0, {0xC3: False, b.key: False}))
        expect("replaced without the key", host.status_of(f"{register} --nrkey={a.key:#x} --rrega=2 --iekey"), 0)
        expect("removed with a wrong key", host.status_of(f"{register} --crkey=0xd4 --rrega=1"), RESERVATION_CONFLICT)
        expect("removed", host.status_of(f"{register} --crkey={a.key:#x} --rrega=1"), 0)
        expect("report", a.report(), (0, {b.key: False}))
        expect("acquired without a key", a.acquire(WRITE_EXCLUSIVE), RESERVATION_CONFLICT)
    with report.test("resv-report with short host identifiers is refused: hosts have long ones"):
        short = f"io-passthru {a.device} --opcode=0x0e -n {a.nsid} --cdw10=15 --cdw11=0 -l 64 -r -b"
        expect("status", host.status_of(short), HOST_ID_INCONSISTENT)


def _test_notifications(report: Report, host: Host, a: Peer, b: Peer) -> None:
    with report.test("a release and a clear are told to the other host"):
        expect("registered", a.register(), 0)
        expect("acquired", b.acquire(WRITE_EXCLUSIVE_REGISTRANTS_ONLY), 0)
        _drain_log(host, a)
        expect("released", b.release(WRITE_EXCLUSIVE_REGISTRANTS_ONLY), 0)
        expect("type, NSID", _log(host, a), (2, a.nsid))
        expect("cleared", b.release(0, action=1), 0)
        expect("type, NSID", _log(host, a), (3, a.nsid))
        expect("nothing more", _log(host, a)[0], 0)
        expect("nobody is left", a.report(), (0, {}))


def _drain_log(host: Host, peer: Peer) -> None:
    while _log(host, peer)[0] != 0:
        pass


def _log(host: Host, peer: Peer) -> tuple[int, int]:
    """Type and NSID of the oldest Reservation Notification, byte by byte."""
    printed = host.sh(f"nvme get-log /dev/{peer.controller} -i 0x80 -l 64 -b | od -An -v -tu1").checked()
    page = [int(byte) for byte in re.findall(r"\d+", printed)]
    expect("length", len(page), 64)
    return page[8], int.from_bytes(bytes(page[12:16]), "little")


def _test_protection(report: Report, host: Host, a: Peer, b: Peer) -> None:
    with report.test("write protection (feature 84h) that one host sets holds for both, until it is lifted"):
        expect("get", a.feature(WRITE_PROTECTION), NO_WRITE_PROTECT)
        expect("set", a.protect(WRITE_PROTECT), 0)
        expect("get", (a.feature(WRITE_PROTECTION), b.feature(WRITE_PROTECTION)), (WRITE_PROTECT, WRITE_PROTECT))
        expect("writes", (a.write(), b.write()), (NAMESPACE_WRITE_PROTECTED, NAMESPACE_WRITE_PROTECTED))
        expect("the other reads", b.read(), 0)
        expect_that("NSATTR", host.json(f"id-ns {b.device}")["nsattr"] & 1 == 1)
        host.wait_for("both kernels' disks are read-only", lambda: a.read_only() and b.read_only())
        expect("lifted", b.protect(NO_WRITE_PROTECT), 0)
        expect("writes", (a.write(), b.write()), (0, 0))
        host.wait_for("both kernels' disks are writable", lambda: not a.read_only() and not b.read_only())
    with report.test("set-feature 84h: what no host may ask for"):
        expect("an unknown state", a.protect(7), INVALID_FIELD)
        expect("saved", a.protect(WRITE_PROTECT, "--save"), FEATURE_NOT_SAVEABLE)
        expect("still", b.feature(WRITE_PROTECTION), NO_WRITE_PROTECT)
