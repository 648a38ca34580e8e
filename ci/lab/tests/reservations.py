"""Two hosts on one namespace: reservations and write protection, as nvme-cli asks for them.

The kernel joins the paths of one subsystem into one disk, whichever host they belong to, so it is loaded again without multipath: then each host's
controller has block devices of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .host import NQN, Host
from .report import Report, expect, expect_that
from .volumes import Namespace

RESERVATION_CONFLICT = 0x083
HOST_ID_INCONSISTENT = 0x018
NAMESPACE_WRITE_PROTECTED = 0x020
INVALID_FIELD = 0x002
FEATURE_NOT_SAVEABLE = 0x10D
WRITE_EXCLUSIVE = 1
WRITE_EXCLUSIVE_REGISTRANTS_ONLY = 3
NO_WRITE_PROTECT, WRITE_PROTECT = 0, 1
HOSTS = {
    "a": ("nqn.2026-11.io.example:a", "aaaaaaaa-0000-4000-8000-00000000000a"),
    "b": ("nqn.2026-11.io.example:b", "bbbbbbbb-0000-4000-8000-00000000000b"),
}


@dataclass(frozen=True)
class Peer:
    """One of the hosts: its controller, its path to the namespace, its key."""

    controller: str
    device: str
    nsid: int
    key: int


def test_two_hosts(report: Report, host: Host, raw: Namespace) -> None:
    """The host is connected before, and afterwards."""
    host.disconnect()
    _load(host, multipath=False)
    peers = {name: _connect(host, raw, *ids, key) for (name, ids), key in zip(HOSTS.items(), (0xA1, 0xB2))}
    try:
        _test_reservations(report, host, peers["a"], peers["b"])
        _test_keys(report, host, peers["a"], peers["b"])
        _test_notifications(report, host, peers["a"], peers["b"])
        _test_protection(report, host, peers["a"], peers["b"])
    finally:
        host.sh(f"nvme disconnect -n {NQN}").checked()
        _load(host, multipath=True)


def _load(host: Host, multipath: bool) -> None:
    value = "Y" if multipath else "N"
    host.sh(f"set -e; modprobe -r nvme-tcp nvme-fabrics nvme-core; modprobe nvme-core multipath={value}; modprobe nvme-tcp").checked()


def _connect(host: Host, raw: Namespace, nqn: str, host_id: str, key: int) -> Peer:
    host.sh(
        f"nvme connect {host.address()} -n {NQN} --hostnqn={nqn} --hostid={host_id} --nr-io-queues=2 --keep-alive-tmo=5"
    ).checked()
    controller = host.sh(f"grep -lx {nqn} /sys/class/nvme/nvme*/hostnqn | cut -d/ -f5").checked().strip()
    host.wait_for(f"{controller} has namespace {raw.nsid}", lambda: _device(host, controller, raw.nsid) is not None)
    device = _device(host, controller, raw.nsid)
    assert device is not None
    return Peer(controller, device, raw.nsid, key)


def _device(host: Host, controller: str, nsid: int) -> str | None:
    """The number in a disk's name is not the NSID: the kernel counts as it finds them, in any order."""
    names = host.sh(f"grep -lx {nsid} /sys/block/{controller}n*/nsid | cut -d/ -f4").output.split()
    return f"/dev/{names[0]}" if len(names) == 1 else None


def _register(host: Host, peer: Peer) -> int:
    return host.status_of(f"resv-register {peer.device} --nrkey={peer.key:#x} --rrega=0")


def _acquire(host: Host, peer: Peer, rtype: int, action: int = 0, preempt: int = 0) -> int:
    keys = f"--crkey={peer.key:#x} --prkey={preempt:#x}"
    return host.status_of(f"resv-acquire {peer.device} {keys} --rtype={rtype} --racqa={action}")


def _release(host: Host, peer: Peer, rtype: int, action: int = 0) -> int:
    return host.status_of(f"resv-release {peer.device} --crkey={peer.key:#x} --rtype={rtype} --rrela={action}")


def _write(host: Host, peer: Peer) -> int:
    block = host.target.lba_bytes
    return host.status_of(f"write {peer.device} -s 0 -c 0 -z {block} -d /dev/zero")


def _read(host: Host, peer: Peer) -> int:
    block = host.target.lba_bytes
    return host.status_of(f"read {peer.device} -s 0 -c 0 -z {block} -d /dev/null")


def _report(host: Host, peer: Peer) -> tuple[int, dict[int, bool]]:
    """RTYPE, and of each key whether its host holds the reservation."""
    printed = host.json(f"resv-report {peer.device} --eds")
    registrants = printed.get("regctlext") or printed.get("regctl_ext") or []
    return printed["rtype"], {entry["rkey"]: entry["rcsts"] & 1 == 1 for entry in registrants}


def _test_reservations(report: Report, host: Host, a: Peer, b: Peer) -> None:
    with report.test("two hosts register, one acquires, and the other's writes conflict"):
        expect("registered", (_register(host, a), _register(host, b)), (0, 0))
        expect("acquired", _acquire(host, a, WRITE_EXCLUSIVE), 0)
        expect("report", _report(host, b), (WRITE_EXCLUSIVE, {a.key: True, b.key: False}))
        expect("the holder writes", _write(host, a), 0)
        expect("the other does not", _write(host, b), RESERVATION_CONFLICT)
        expect("the other reads", _read(host, b), 0)
        expect("nor does it acquire", _acquire(host, b, WRITE_EXCLUSIVE), RESERVATION_CONFLICT)
    with report.test("preempt and abort takes the reservation over"):
        expect("preempted", _acquire(host, b, WRITE_EXCLUSIVE, action=2, preempt=a.key), 0)
        expect("report", _report(host, b), (WRITE_EXCLUSIVE, {b.key: True}))
        expect("who held it conflicts", _write(host, a), RESERVATION_CONFLICT)
        expect("who holds it writes", _write(host, b), 0)
        expect("released", _release(host, b, WRITE_EXCLUSIVE), 0)
        expect("all write again", (_write(host, a), _write(host, b)), (0, 0))


def _test_keys(report: Report, host: Host, a: Peer, b: Peer) -> None:
    with report.test("resv-register replaces and removes keys, of those who know them"):
        register = f"resv-register {a.device}"
        expect("registered", _register(host, a), 0)
        expect("again with another key", host.status_of(f"{register} --nrkey=0xc3 --rrega=0"), RESERVATION_CONFLICT)
        expect("replaced with a wrong key", host.status_of(f"{register} --crkey=0xd4 --nrkey=0xc3 --rrega=2"), RESERVATION_CONFLICT)
        expect("replaced", host.status_of(f"{register} --crkey={a.key:#x} --nrkey=0xc3 --rrega=2"), 0)
        expect("report", _report(host, b), (0, {0xC3: False, b.key: False}))
        expect("replaced without the key", host.status_of(f"{register} --nrkey={a.key:#x} --rrega=2 --iekey"), 0)
        expect("removed with a wrong key", host.status_of(f"{register} --crkey=0xd4 --rrega=1"), RESERVATION_CONFLICT)
        expect("removed", host.status_of(f"{register} --crkey={a.key:#x} --rrega=1"), 0)
        expect("report", _report(host, a), (0, {b.key: False}))
        expect("acquired without a key", _acquire(host, a, WRITE_EXCLUSIVE), RESERVATION_CONFLICT)
    with report.test("resv-report with short host identifiers is refused: hosts have long ones"):
        short = f"io-passthru {a.device} --opcode=0x0e -n {a.nsid} --cdw10=15 --cdw11=0 -l 64 -r -b"
        expect("status", host.status_of(short), HOST_ID_INCONSISTENT)


def _test_notifications(report: Report, host: Host, a: Peer, b: Peer) -> None:
    with report.test("a release and a clear are told to the other host"):
        expect("registered", _register(host, a), 0)
        expect("acquired", _acquire(host, b, WRITE_EXCLUSIVE_REGISTRANTS_ONLY), 0)
        _drain_log(host, a)
        expect("released", _release(host, b, WRITE_EXCLUSIVE_REGISTRANTS_ONLY), 0)
        expect("type, NSID", _log(host, a), (2, a.nsid))
        expect("cleared", _release(host, b, 0, action=1), 0)
        expect("type, NSID", _log(host, a), (3, a.nsid))
        expect("nothing more", _log(host, a)[0], 0)
        expect("nobody is left", _report(host, a), (0, {}))


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
        expect("get", _protection(host, a), NO_WRITE_PROTECT)
        expect("set", _protect(host, a, WRITE_PROTECT), 0)
        expect("get", (_protection(host, a), _protection(host, b)), (WRITE_PROTECT, WRITE_PROTECT))
        expect("writes", (_write(host, a), _write(host, b)), (NAMESPACE_WRITE_PROTECTED, NAMESPACE_WRITE_PROTECTED))
        expect("the other reads", _read(host, b), 0)
        expect_that("NSATTR", host.json(f"id-ns {b.device}")["nsattr"] & 1 == 1)
        host.wait_for("both kernels' disks are read-only", lambda: _read_only(host, a, b) == ["1", "1"])
        expect("lifted", _protect(host, b, NO_WRITE_PROTECT), 0)
        expect("writes", (_write(host, a), _write(host, b)), (0, 0))
        host.wait_for("both kernels' disks are writable", lambda: _read_only(host, a, b) == ["0", "0"])
    with report.test("set-feature 84h: what no host may ask for"):
        expect("an unknown state", _protect(host, a, 7), INVALID_FIELD)
        expect("saved", host.status_of(f"set-feature {a.device} -n {a.nsid} -f 0x84 -V 1 --save"), FEATURE_NOT_SAVEABLE)
        expect("still", _protection(host, b), NO_WRITE_PROTECT)


def _protect(host: Host, peer: Peer, state: int) -> int:
    return host.status_of(f"set-feature {peer.device} -n {peer.nsid} -f 0x84 -V {state}")


def _protection(host: Host, peer: Peer) -> int:
    printed = host.sh(f"nvme get-feature {peer.device} -n {peer.nsid} -f 0x84").checked()
    return int(printed.rpartition(":")[2], 0)


def _read_only(host: Host, *peers: Peer) -> list[str]:
    return host.sh(f"cat {' '.join(f'/sys/block/{peer.device[5:]}/ro' for peer in peers)}").checked().split()
