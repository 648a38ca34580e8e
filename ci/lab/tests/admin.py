"""Discovery, identification, logs, features, and the exact statuses of what is refused."""

from __future__ import annotations

from collections.abc import Sequence

from .host import IO_QUEUES, KEEP_ALIVE_S, Host
from .report import Report, expect, expect_that
from .target import NQN
from .volumes import Namespace

DISCOVERY_NQN = "nqn.2014-08.org.nvmexpress.discovery"
COUNTED_READS = 10

# Status codes: type in bits 10:8, code in bits 7:0 (Base specification, Status Values; NVM command set for 80h).
INVALID_OPCODE = 0x001
INVALID_FIELD = 0x002
INVALID_NAMESPACE = 0x00B
LBA_OUT_OF_RANGE = 0x080
INVALID_LOG_PAGE = 0x109

# Features that an I/O controller must have, with what the host's own settings make of them where they do.
MANDATORY_FEATURES = {
    0x01: "Arbitration",
    0x02: "Power Management",
    0x04: "Temperature Threshold",
    0x05: "Error Recovery",
    0x07: "Number of Queues",
    0x0A: "Write Atomicity Normal",
    0x0B: "Async Event Configuration",
    0x0F: "Keep Alive Timer",
}


def test_discovery(report: Report, host: Host) -> None:
    with report.test("discover names the subsystem and its address"):
        records = host.json(f"discover {host.address()}")["records"]
        found = [record for record in records if record["subtype"] == "nvme subsystem"]
        expect("the number of I/O subsystems", len(found), 1)
        expect("subnqn", found[0]["subnqn"], NQN)
        expect("trtype", found[0]["trtype"], "tcp")
        expect("adrfam", found[0]["adrfam"], "ipv4")
        expect("trsvcid", found[0]["trsvcid"].strip(), str(host.target.port))
        others = {record["subnqn"] for record in records if record["subtype"] != "nvme subsystem"}
        expect_that("every other record is the discovery subsystem itself", others <= {DISCOVERY_NQN})


def test_connected(report: Report, host: Host, namespaces: Sequence[Namespace]) -> None:
    with report.test("connect with several I/O queues"):
        expect("queues with the admin queue", host.controller_file("queue_count"), str(1 + IO_QUEUES))
        expect("state", host.controller_file("state"), "live")
        expect("keep-alive", host.controller_file("kato"), str(KEEP_ALIVE_S))
    with report.test("list shows every namespace with its size"):
        listed = {entry["NameSpace"]: entry for entry in host.json("list")["Devices"]}
        sizes = {nsid: (entry["PhysicalSize"], entry["SectorSize"]) for nsid, entry in listed.items()}
        expect("sizes", sizes, {ns.nsid: (ns.size_bytes, host.target.lba_bytes) for ns in namespaces})
    with report.test("list-ns gives the active namespaces in order"):
        active = [entry["nsid"] for entry in host.json(f"list-ns /dev/{host.controller()}")["nsid_list"]]
        expect("active namespaces", active, [ns.nsid for ns in namespaces])


def test_identify(report: Report, host: Host, namespaces: Sequence[Namespace]) -> None:
    with report.test("id-ctrl describes an I/O controller"):
        fields = host.json(f"id-ctrl /dev/{host.controller()}")
        expect("subnqn", fields["subnqn"], NQN)
        expect("cntrltype", fields["cntrltype"], 1)
        expect("sqes", fields["sqes"], 0x66)
        expect("cqes", fields["cqes"], 0x44)
        expect("icdoff", fields["icdoff"], 0)
        expect("vwc present", fields["vwc"] & 1, 1)
        expect_that("ver is 1.3 or later", fields["ver"] >= 0x10300)
        expect_that("nn covers every namespace", fields["nn"] >= namespaces[-1].nsid)
        expect_that("ioccsz holds a command (64 bytes)", fields["ioccsz"] >= 4)
        expect("iorcsz", fields["iorcsz"], 1)
        expect_that("kas is given, as Fabrics demands", fields["kas"] > 0)
        expect_that("maxcmd is given, as Fabrics demands", fields["maxcmd"] > 0)
        expect_that("sgls: SGLs are supported", fields["sgls"] & 3 in (1, 2))
        for name in ("sn", "mn", "fr"):
            expect_that(f"{name} is printable and not blank", fields[name].isascii() and fields[name].strip() != "")
    for namespace in namespaces:
        with report.test(f"id-ns {namespace.nsid} ({namespace.title})"):
            fields = host.json(f"id-ns {host.device(namespace.nsid)}")
            blocks = namespace.size_bytes // host.target.lba_bytes
            expect("nsze, ncap", (fields["nsze"], fields["ncap"]), (blocks, blocks))
            expect_that("nuse is not above ncap", fields["nuse"] <= blocks)
            format_in_use = fields["lbafs"][fields["flbas"] & 0xF]
            expect("LBA size", 1 << format_in_use["ds"], host.target.lba_bytes)
            expect("metadata bytes", format_in_use["ms"], 0)
    with report.test("ns-descs: every namespace has its own identifiers"):
        seen = identifiers(host, namespaces)
        expect("namespaces with identifiers", len(seen), len(namespaces))
        expect("different identifiers", len(set(seen.values())), len(namespaces))


def identifiers(host: Host, namespaces: Sequence[Namespace]) -> dict[int, str]:
    """UUID and NGUID of each namespace; both must be there and not be zero."""
    found = {}
    for namespace in namespaces:
        descriptors = host.json(f"ns-descs {host.device(namespace.nsid)}")["ns-descs"]
        by_type = {entry["Type"]: entry.get(entry["Type"]) for entry in descriptors}
        for kind in ("uuid", "nguid"):
            value = str(by_type.get(kind, "")).replace("-", "")
            expect_that(f"namespace {namespace.nsid} has a {kind}", value.strip("0") != "")
        found[namespace.nsid] = f"{by_type['uuid']} {by_type['nguid']}"
    return found


def test_logs(report: Report, host: Host, raw: Namespace) -> None:
    admin = f"/dev/{host.controller()}"
    device = host.device(raw.nsid)
    block = host.target.lba_bytes
    with report.test("smart-log counts reads exactly"):
        before = host.json(f"smart-log {admin}")
        expect("critical_warning", before["critical_warning"], 0)
        read = f"nvme read {device} -s 0 -c 0 -z {block} -d /dev/null"
        host.sh(f"set -e; for i in $(seq {COUNTED_READS}); do {read}; done").checked()
        after = host.json(f"smart-log {admin}")
        counted = after["host_read_commands"] - before["host_read_commands"]
        expect("reads counted", counted, COUNTED_READS)
        expect("writes counted", after["host_write_commands"], before["host_write_commands"])
    with report.test("a read beyond the end: LBA Out of Range, and an entry in the error log"):
        beyond = raw.size_bytes // block
        before = host.json(f"smart-log {admin}")["num_err_log_entries"]
        expect("status", host.status_of(f"read {device} -s {beyond} -c 0 -z {block} -d /dev/null"), LBA_OUT_OF_RANGE)
        entry = host.json(f"error-log {admin} -e 1")["errors"][0]
        # nvme-cli has taken the phase tag off already.
        expect("logged status", entry["status_field"] & 0x7FF, LBA_OUT_OF_RANGE)
        expect("logged LBA, NSID", (entry["lba"], entry["nsid"]), (beyond, raw.nsid))
        expect("error count", entry["error_count"], before + 1)
        expect("entries counted by smart-log", host.json(f"smart-log {admin}")["num_err_log_entries"], before + 1)
    with report.test("mandatory log pages answer"):
        for page, length in ((0x00, 1024), (0x01, 64), (0x02, 512), (0x03, 512), (0x05, 4096), (0x12, 512)):
            expect(f"status of log {page:#x}", host.status_of(f"get-log {admin} -i {page} -l {length} -b"), 0)


def test_features(report: Report, host: Host, first: Namespace) -> None:
    admin = f"/dev/{host.controller()}"
    with report.test("mandatory features answer"):
        for feature, name in MANDATORY_FEATURES.items():
            # Error Recovery belongs to a namespace.
            whose = f"{admin} -n {first.nsid}" if feature == 0x05 else admin
            expect(f"status of feature {feature:#x} ({name})", host.status_of(f"get-feature {whose} -f {feature}"), 0)
    with report.test("get-feature gives what the host has set"):
        printed = host.sh(f"nvme get-feature {admin} -f 0x0f").checked()
        expect("Keep Alive Timer", int(printed.rpartition(":")[2], 0), KEEP_ALIVE_S * 1000)
    with report.test("set-feature is kept until it is set again"):
        for threshold in (0x0150, 0x0157):
            expect("status", host.status_of(f"set-feature {admin} -f 4 -V {threshold}"), 0)
            printed = host.sh(f"nvme get-feature {admin} -f 4").checked()
            expect("Temperature Threshold", int(printed.rpartition(":")[2], 0), threshold)


def test_refusals(report: Report, host: Host) -> None:
    admin = f"/dev/{host.controller()}"
    cases = (
        ("an unknown admin command", f"admin-passthru {admin} --opcode=0xff", INVALID_OPCODE),
        ("an unknown log page", f"get-log {admin} -i 0xbf -l 64 -b", INVALID_LOG_PAGE),
        ("an unknown feature", f"admin-passthru {admin} --opcode=0x0a --cdw10=0x7f", INVALID_FIELD),
        ("an unknown Identify structure", f"admin-passthru {admin} --opcode=6 --cdw10=0xff -l 4096 -r -b", INVALID_FIELD),
        ("a namespace beyond nn", f"id-ns {admin} -n 0xfffffffe", INVALID_NAMESPACE),
    )
    for what, command, status in cases:
        with report.test(f"refused: {what}"):
            expect("status", host.status_of(command), status)
