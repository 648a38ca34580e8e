"""Each kind of failing command leaves one entry in the Error Information log, which says what failed, where and how."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .commands import COMPARE_FAILURE, LBA_OUT_OF_RANGE, UNRECOVERED_READ_ERROR
from .host import Host
from .report import Report, expect, expect_that
from .volumes import Namespace
from .writes import WRITE_PROTECTED

INVALID_OPCODE = 0x001
INVALID_FIELD = 0x002
INVALID_NAMESPACE = 0x00B
INVALID_LOG_PAGE = 0x109
FEATURE_NOT_CHANGEABLE = 0x10E
# Error Information log entry (Base, "Error Information Log Page"): error count, SQID, CID, status, parameter error location, LBA, NSID, vendor
# log page, transport type, CSI, opcode, command specific, transport specific, version.
ENTRY = struct.Struct("<QHHHHQIBBBBQH21xB")
TRTYPE_TCP = 3
ADMIN_QUEUE = 0
EVERY_NSID = 0xFFFFFFFF

BLOCKS = 8
# The block in which what is compared differs, and the block that is marked.
DIFFERENT, MARKED = 3, 5


@dataclass(frozen=True)
class Failure:
    """A command of nvme-cli, and the entry that it must leave."""

    what: str
    command: str
    opcode: int
    status: int
    nsid: int
    lba: int = 0
    on_admin_queue: bool = False


@dataclass(frozen=True)
class Entry:
    """What an entry says that every failure must have right."""

    count: int
    sqid: int
    status: int
    lba: int
    nsid: int
    trtype: int
    opcode: int
    version: int


def test_error_log(report: Report, host: Host, raw: Namespace, volume: Namespace) -> None:
    admin = f"/dev/{host.controller()}"
    _prepare(host, raw)
    count = host.json(f"smart-log {admin}")["num_err_log_entries"]
    for failure in [*_io_failures(host, raw, volume), *_admin_failures(admin)]:
        with report.test(f"error-log after {failure.what}"):
            expect("status", host.status_of(failure.command), failure.status)
            count += 1
            entry = _newest(host, admin)
            expect("error count", entry.count, count)
            seen = (entry.opcode, entry.status, entry.nsid, entry.lba)
            expect("opcode, status, NSID, LBA", seen, (failure.opcode, failure.status, failure.nsid, failure.lba))
            expect("on the admin queue", entry.sqid == ADMIN_QUEUE, failure.on_admin_queue)
            expect("transport type, log page version", (entry.trtype, entry.version), (TRTYPE_TCP, 1))
    with report.test("smart-log counts the entries, and the log is newest first"):
        expect("entries", host.json(f"smart-log {admin}")["num_err_log_entries"], count)
        numbers = [entry["error_count"] for entry in host.json(f"error-log {admin} -e 8")["errors"]]
        expect("error counts", numbers, list(range(count, count - 8, -1)))
    block = host.target.lba_bytes
    restored = host.status_of(f"write {host.device(raw.nsid)} -s 0 -c {BLOCKS - 1} -z {BLOCKS * block} -d /tmp/data")
    expect_that("the marked block can be written again", restored == 0)


def _newest(host: Host, admin: str) -> Entry:
    """From the bytes, since what nvme-cli prints lacks some fields."""
    printed = host.sh(f"nvme error-log {admin} -e 1 -o binary | od -An -v -tx1").checked()
    page = bytes.fromhex(printed)
    expect("bytes of one entry", len(page), ENTRY.size)
    count, sqid, _cid, status, _location, lba, nsid, _vs, trtype, _csi, opcode, _cs, _info, version = ENTRY.unpack(page)
    # Without the phase tag and Do Not Retry.
    return Entry(count, sqid, status >> 1 & 0x7FF, lba, nsid, trtype, opcode, version)


def _prepare(host: Host, raw: Namespace) -> None:
    """Blocks with known bytes, a file that differs from them in one block, and one block marked."""
    block = host.target.lba_bytes
    host.sh(
        f"""set -e
head -c {BLOCKS * block} /dev/urandom >/tmp/data
cp /tmp/data /tmp/other
head -c {block} /dev/zero | dd of=/tmp/other bs={block} seek={DIFFERENT} conv=notrunc status=none
nvme write {host.device(raw.nsid)} -s 0 -c {BLOCKS - 1} -z {BLOCKS * block} -d /tmp/data
nvme write-uncor {host.device(raw.nsid)} -s {MARKED} -c 0
"""
    ).checked()


def _io_failures(host: Host, raw: Namespace, volume: Namespace) -> list[Failure]:
    device, block, nsid = host.device(raw.nsid), host.target.lba_bytes, raw.nsid
    end = raw.size_bytes // block

    def out_of_range(what: str, opcode: int, arguments: str) -> Failure:
        # The first block that is not there, wherever the command began.
        return Failure(f"{what} beyond the end", f"{what} {device} {arguments}", opcode, LBA_OUT_OF_RANGE, nsid, end)

    one, some = f"-c 0 -z {block}", f"-s 0 -c {DIFFERENT} -z {(DIFFERENT + 1) * block}"
    return [
        out_of_range("read", 0x02, f"-s {end - 1} -c 1 -z {2 * block} -d /dev/null"),
        out_of_range("write", 0x01, f"-s {end} {one} -d /dev/zero"),
        out_of_range("compare", 0x05, f"-s {end} {one} -d /dev/zero"),
        out_of_range("verify", 0x0C, f"-s {end} -c 0"),
        out_of_range("write-zeroes", 0x08, f"-s {end} -c 0"),
        out_of_range("write-uncor", 0x04, f"-s {end} -c 0"),
        out_of_range("copy", 0x19, f"--sdlba={end} --slbs=0 --blocks=0 --format=0"),
        out_of_range("dsm", 0x09, f"--ad --slbs={end} --blocks=1"),
        Failure("compare that differs", f"compare {device} {some} -d /tmp/other", 0x05, COMPARE_FAILURE, nsid, DIFFERENT),
        Failure("read of a marked block", f"read {device} -s {MARKED - 1} -c 1 -z {2 * block} -d /dev/null", 0x02,
                UNRECOVERED_READ_ERROR, nsid, MARKED),
        Failure("verify of a marked block", f"verify {device} -s 0 -c {BLOCKS - 1}", 0x0C, UNRECOVERED_READ_ERROR, nsid, MARKED),
        Failure("copy from a marked block", f"copy {device} --sdlba=100 --slbs={MARKED} --blocks=0 --format=0", 0x19,
                UNRECOVERED_READ_ERROR, nsid, MARKED),
        Failure("write to a volume", f"write {host.device(volume.nsid)} -s 7 {one} -d /dev/zero", 0x01, WRITE_PROTECTED, volume.nsid, 7),
        Failure("an unknown I/O command", f"io-passthru {device} --opcode=0x7f -n {nsid}", 0x7F, INVALID_OPCODE, nsid),
    ]


def _admin_failures(admin: str) -> list[Failure]:
    def failure(what: str, command: str, opcode: int, status: int, nsid: int = 0) -> Failure:
        return Failure(what, command, opcode, status, nsid, on_admin_queue=True)

    return [
        failure("an unknown admin command", f"admin-passthru {admin} --opcode=0xff", 0xFF, INVALID_OPCODE),
        failure("get-log of an unknown page", f"get-log {admin} -i 0xbf -l 64 -b", 0x02, INVALID_LOG_PAGE, EVERY_NSID),
        failure("get-feature of an unknown feature", f"admin-passthru {admin} --opcode=0x0a --cdw10=0x7f", 0x0A, INVALID_FIELD),
        failure("set-feature of what cannot be changed", f"set-feature {admin} -f 6 -V 0", 0x09, FEATURE_NOT_CHANGEABLE, EVERY_NSID),
        failure("id-ns of a namespace beyond nn", f"id-ns {admin} -n 0xfffffffe", 0x06, INVALID_NAMESPACE, 0xFFFFFFFE),
    ]
