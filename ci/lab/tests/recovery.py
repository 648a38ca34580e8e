"""The target is killed in the middle of I/O and started again: the host comes back, and nothing it reads is wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence

from .admin import identifiers
from .host import Host
from .plan import random_reads, random_writes
from .reads import tally
from .report import Report, expect, expect_that
from .volumes import Namespace

KILLS = 3
# Reads that must end between two kills: enough that both readers are busy on every queue.
READS_BETWEEN = 60
FOLDER = "/tmp/loop"


def test_kill_under_reads(
    report: Report, host: Host, volumes: Sequence[Namespace], memory: Namespace, seed: int
) -> None:
    with report.test(f"kill -9 under reads, {KILLS} times: every read is right and none fails"):
        reconnects = _reconnects(host)
        _start_reading(host, volumes, seed)
        for _ in range(KILLS):
            _wait_for_reads(host, READS_BETWEEN)
            host.target.kill()
            host.wait_for("the host has lost the controller", lambda: host.controller_file("state") != "live")
            host.target.start()
            host.wait_for("the controller is live again", lambda: host.controller_file("state") == "live")
        _wait_for_reads(host, READS_BETWEEN)
        answer = _stop_reading(host)
        expect("wrong or failed reads", answer["examples"], [])
        expect("errors, mismatches", tally(answer)[1:], (0, 0))
        expect_that("reads went on between the kills", int(str(answer["reads"])) >= (KILLS + 1) * READS_BETWEEN)
        expect("reconnects that the kernel reports", _reconnects(host) - reconnects, KILLS)
        expect("what the kernel complains about", _complaints_apart_from(memory, host), [])
    with report.test("raw memory is a new namespace after a restart, since its content is lost"):
        expect_that("the host saw other identifiers", _new_identity(memory) in " ".join(host.complaints()))


def test_identity_across_restart(report: Report, host: Host, volumes: Sequence[Namespace]) -> None:
    with report.test("a restart keeps every volume's identifiers"):
        before = identifiers(host, volumes)
        _restart(host)
        expect("identifiers", identifiers(host, volumes), before)


def test_flushed_write(report: Report, host: Host, raw_file: Namespace, seed: int) -> None:
    with report.test("a flushed write survives kill -9"):
        device = host.device(raw_file.nsid)
        (written,) = host.blocks("write", random_writes(raw_file, device, 20, seed + 1))
        _restart(host)
        (seen,) = host.blocks("hash", [{"device": device, "length": raw_file.size_bytes}])
        expect("sha256 after the restart", seen["sha256"], written["wanted"])


def test_end(report: Report, host: Host, memory: Namespace) -> None:
    with report.test("the kernel has nothing to complain about"):
        expect("complaints", _complaints_apart_from(memory, host), [])
    with report.test("disconnect leaves the target running"):
        expect_that("one controller was disconnected", "disconnected 1 controller" in host.disconnect())
        host.target.expect_alive()
    with report.test("the target ends on SIGTERM"):
        host.target.stop()


def _new_identity(memory: Namespace) -> str:
    return f"identifiers changed for nsid {memory.nsid}"


def _complaints_apart_from(memory: Namespace, host: Host) -> list[str]:
    return [line for line in host.complaints() if not line.endswith(_new_identity(memory))]


def _restart(host: Host) -> None:
    host.target.kill()
    host.wait_for("the host has lost the controller", lambda: host.controller_file("state") != "live")
    host.target.start()
    host.wait_for("the controller is live again", lambda: host.controller_file("state") == "live")


def _start_reading(host: Host, volumes: Sequence[Namespace], seed: int) -> None:
    jobs = [job for ns in volumes for job in random_reads(ns, host.device(ns.nsid), 40, seed) if job["direct"]]
    host.sh(
        f"rm -rf {FOLDER}; mkdir {FOLDER}; cat >{FOLDER}/jobs <<'END'\n{json.dumps(jobs)}\nEND\n"
        f"blocks loop {FOLDER} <{FOLDER}/jobs >{FOLDER}/answer 2>&1 &\necho $! >{FOLDER}/pid"
    ).checked()


def _stop_reading(host: Host) -> dict[str, object]:
    host.sh(f"touch {FOLDER}/stop").checked()
    host.wait_for("the readers have ended", lambda: host.sh(f"kill -0 $(cat {FOLDER}/pid)").status != 0)
    answer = json.loads(host.sh(f"cat {FOLDER}/answer").checked())
    assert isinstance(answer, dict)
    return answer


def _reads(host: Host) -> list[int]:
    """Reads so far, one number a reader."""
    printed = host.sh(f"cd {FOLDER} && for i in 0 1; do [ -f reads.$i ] && cat reads.$i && echo; done").output
    return [int(line) for line in printed.split()] or [0]


def _wait_for_reads(host: Host, more: int) -> None:
    """Both readers must get ahead: one alone could be all that still works."""
    before = _reads(host)
    wanted = [count + more // 2 for count in (before * 2)[:2]]
    host.wait_for(f"{more} more reads", lambda: len(now := _reads(host)) == 2 and all(map(int.__ge__, now, wanted)))


def _reconnects(host: Host) -> int:
    return int(host.sh("dmesg | grep -c 'Successfully reconnected'").output)
