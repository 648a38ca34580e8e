"""Linux's host, in a guest, against snap-target on the build machine, through a proxy that breaks the way between them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab.guest import Guest
from lab.network.faults import Cut, Rate
from lab.network.proxy import Proxy

from .daemon import Daemon
from .report import Report, expect, expect_that, wait_for

NQN = "nqn.2014-08.org.nvmexpress:xio-lab-reached"
# The build machine's 127.0.0.1, as QEMU's user network has it in a guest.
BUILD_MACHINE_IPV4 = "10.0.2.2"
DEVICE = "/dev/nvme0n1"
# So slow that a write of 16 MiB is still under way when something happens to it.
BYTES_PER_S = 8_000_000
BYTES_BEFORE = 2 << 20
SECONDS_MAX = 90.0


def test_host(report: Report, snap_target: Sequence[str], guest: Guest, data: Path, seed: int) -> None:
    """`data` is the build machine's file; the guest has it as /share/data."""
    size_bytes = data.stat().st_size
    daemon = Daemon(data.parent / "snap-target.log")
    daemon.run([*snap_target, f"mem:{size_bytes}", "--listen", f"127.0.0.1:{daemon.port}", "--nqn", NQN])
    try:
        with Proxy(("127.0.0.1", daemon.port), seed) as proxy:
            guest.run("modprobe nvme_tcp && dmesg -c >/dev/null").checked()
            guest.run(
                f"timeout 30 nvme connect -t tcp -a {BUILD_MACHINE_IPV4} -s {proxy.port} -n {NQN} "
                "--nr-io-queues=1 --keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=-1"
            ).checked()
            wait_for("the disk is there", lambda: guest.run(f"[ -b {DEVICE} ]").status == 0, SECONDS_MAX)
            _test_faults(report, daemon, proxy, guest, data, size_bytes)
            guest.run(f"nvme disconnect -n {NQN}").checked()
    finally:
        daemon.kill()


def _test_faults(report: Report, daemon: Daemon, proxy: Proxy, guest: Guest, data: Path, size_bytes: int) -> None:
    def write() -> None:
        guest.run(f"dd if=/share/data of={DEVICE} bs=128k oflag=direct conv=fsync", SECONDS_MAX, daemon.expect_alive).checked()

    def reconnects() -> int:
        return int(guest.run("dmesg | grep -c 'Successfully reconnected' || true").checked())

    with report.test("Linux's host against snap-target: a reset, then a half-open connection in the middle of a write: the host comes back twice"):
        with proxy.fault(Rate(bytes_per_s=BYTES_PER_S), "client", "server"), ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            _wait_for_bytes(proxy)
            # The admin queue's and the I/O queue's.
            expect("connections that were reset", proxy.reset(), 2)
            _wait_for_bytes(proxy)
            ends = proxy.count.client_ends
            with proxy.fault(Cut(), "server", "client"):
                # What the target answers is not heard: the host's keep alive runs out. A second later it tries again.
                wait_for("the host has given up both connections", lambda: proxy.count.client_ends == ends + 2, SECONDS_MAX)
                expect_that("the write was not over yet", not writing.done())
            writing.result()
        expect("reconnects that the kernel reports", reconnects(), 2)
        read = guest.run(f"dd if={DEVICE} bs=128k iflag=direct 2>/dev/null | sha256sum", SECONDS_MAX, daemon.expect_alive).checked()
        expect("SHA-256 of what the host reads", read.split()[0], hashlib.sha256(data.read_bytes()).hexdigest())
        expect("size", int(guest.run(f"blockdev --getsize64 {DEVICE}").checked()), size_bytes)
        errors = guest.run("dmesg | grep -cE 'I/O error|critical [a-z]+ error' || true").checked().strip()
        expect("errors in the kernel's log", errors, "0")
        daemon.expect_alive()


def _wait_for_bytes(proxy: Proxy) -> None:
    before = proxy.count.client_bytes
    wait_for("the write is under way", lambda: proxy.count.client_bytes > before + BYTES_BEFORE, SECONDS_MAX)
