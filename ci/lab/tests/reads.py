"""Every presented byte: whole namespaces, and random reads, against the source."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from .host import Host
from .plan import random_reads
from .report import Report, expect
from .volumes import Namespace

READS_PER_NAMESPACE = 300


def test_whole(report: Report, host: Host, volumes: Sequence[Namespace], when: str) -> None:
    """`when` tells apart the runs of this test in one report."""
    seen: dict[str, dict[str, object]] = {}
    with report.test(f"every namespace is read to its end {when}"):
        jobs = [{"device": host.device(ns.nsid), "length": len(ns.content or b"")} for ns in volumes]
        seen = {answer["device"]: answer for answer in host.blocks("hash", jobs)}
    for namespace in volumes:
        with report.test(f"sha256 of namespace {namespace.nsid} ({namespace.title}) {when}"):
            answer = seen[host.device(namespace.nsid)]
            expect("size", answer["size"], namespace.size_bytes)
            expect("sha256", answer["sha256"], hashlib.sha256(namespace.content or b"").hexdigest())
            expect("zeros behind the last value", answer["rest_is_zero"], True)


def test_random(report: Report, host: Host, volumes: Sequence[Namespace], seed: int, when: str) -> None:
    for namespace in volumes:
        name = f"{READS_PER_NAMESPACE} random reads of namespace {namespace.nsid} ({namespace.title}) {when}"
        with report.test(name):
            jobs = list(random_reads(namespace, host.device(namespace.nsid), READS_PER_NAMESPACE, seed))
            answer = host.blocks("check", jobs)
            expect("wrong or failed reads", answer["examples"], [])
            expect("reads, errors, mismatches", tally(answer), (READS_PER_NAMESPACE, 0, 0))


def tally(answer: dict[str, object]) -> tuple[object, object, object]:
    return answer["reads"], answer["errors"], answer["mismatches"]
