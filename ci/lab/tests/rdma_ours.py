"""Our store against our target over RoCE: snap-target in guests a and b, with a host in a, and then with one in a guest of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lab.pair import Machine, Trio

from .rdma_faults import FarEnd, test_faults
from .rdma_figures import Figures
from .rdma_store import LOCAL_NQN, REMOTE_NQN, SERVICE, START_SECONDS_MAX, VOLUME_NSID, Store, expect_files, test_volume, url
from .report import Report, wait_for

CONFIG, LOG, PID = "/tmp/target.toml", "/tmp/target.log", "/tmp/target.pid"


@dataclass
class Target:
    """snap-target in guest b, with the disks that Linux's target had there."""

    machine: Machine

    @contextmanager
    def running(self) -> Iterator[FarEnd]:
        namespaces = "".join(f'[[subsystem.namespace]]\nstore = "file:/dev/ram{disk}"\n' for disk in (0, 1))
        subsystem = f'[[subsystem]]\nnqn = "{REMOTE_NQN}"\nallow-any-host = true\n{namespaces}'
        config = f'[target]\nstart = "all"\n[[listener]]\ntransport = "rdma"\naddress = "{self.machine.ipv4}:{SERVICE}"\n{subsystem}'
        self.machine.do(f"cat >{CONFIG} <<'END'\n{config}END")
        self.start()
        try:
            yield FarEnd("our target", url(self.machine.ipv4), self.kill_and_start)
        finally:
            self.machine.run(f"kill $(cat {PID})")

    def start(self) -> None:
        self.machine.do(
            f": >{LOG}; ulimit -l unlimited; /share/snap-target --config {CONFIG} >{LOG} 2>&1 & echo $! >{PID}; "
            f"until grep -q ^ready {LOG}; do kill -0 $(cat {PID}) || exit 1; sleep 0.1; done"
        )

    def kill_and_start(self) -> None:
        self.machine.do(f"kill -9 $(cat {PID})")
        self.start()


def tests(report: Report, store: Store, trio: Trio, figures: Figures) -> None:
    with Target(trio.b).running() as ours:
        with report.test("our store against our target over RoCE: 8 MiB written and read, the target's disk has them"):
            with store.served(url(trio.b.ipv4)):
                store.expect_transfer()
        with report.test("our store against our target over RoCE: figures"):
            figures.add_store(store, ours.name)
        test_faults(report, store, ours)
        test_volume(report, store, ours.name)
        test_third_guest(report, store, trio)


def test_third_guest(report: Report, store: Store, trio: Trio) -> None:
    """Host in c, over TCP to snap-target in a, over RoCE to snap-target in b."""
    host = trio.c
    with report.test("three parties, three guests: a packed dataset over RoCE from b, decoded in a, mounted in c over NVMe/TCP: each file has its SHA-256"):
        store.start(f"volume:{url(trio.b.ipv4, nsid=VOLUME_NSID)}", listen=trio.a.ipv4)
        try:
            started = time.monotonic()
            host.do(f"modprobe -a nvme_tcp erofs && dmesg -c >/dev/null && timeout 60 nvme connect -t tcp -a {trio.a.ipv4} -s {SERVICE} -n {LOCAL_NQN} --nr-io-queues=1")
            wait_for("the disk is there", lambda: host.run("[ -b /dev/nvme0n1 ]").status == 0, START_SECONDS_MAX)
            expect_files(host)
            print(f"        in {time.monotonic() - started:.1f} s", flush=True)
        finally:
            host.run(f"nvme disconnect -n {LOCAL_NQN}")
            store.stop()
