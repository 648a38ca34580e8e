"""Functions that come and go while a guest runs, and the namespaces that they share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import qmp
from lab.guest import Guest
from lab.qmp import Monitor

from .daemon import Administered
from .function import GUEST_MEMORY, NQN
from .report import Report, expect, expect_that, wait_for

# The functions that are there when the guest starts, and the one that comes later.
COLD = ("pf0", "pf0vf1")
HOT = "pf0sf2"
HOT_DEVICE = "hot"
SEEN_SECONDS_MAX = 60.0


class FunctionsTarget(Administered):
    """snap-target with memory as namespace 1, and an admin socket to make functions by."""

    def __init__(self, snap_target: Sequence[str], snapctl: str, folder: Path) -> None:
        admin = folder / "admin"
        super().__init__(folder / "functions.log", [snapctl, "--socket", str(admin)])
        self.folder = folder
        self._command = [*snap_target, "mem:64MiB", "--listen", f"127.0.0.1:{self.port}", "--nqn", NQN, "--admin", str(admin)]
        self._admin = admin

    def start(self) -> None:
        self.run(self._command, self._admin)

    def socket_of(self, name: str) -> Path:
        return self.folder / name

    def create(self, name: str) -> None:
        self.snapctl("function", "create", "--name", name, "--nqn", NQN, "--path", str(self.socket_of(name)))

    def functions(self) -> dict[str, dict[str, Any]]:
        return {function["name"]: function for function in self.asked("function", "list")["functions"]}

    def device(self, name: str) -> dict[str, Any]:
        """As QEMU names it."""
        return {"driver": "vfio-user-pci", "socket": {"type": "unix", "path": str(self.socket_of(name))}}

    def monitor(self) -> Path:
        return self.folder / "monitor"


def options(target: FunctionsTarget) -> list[str]:
    """QEMU's: two functions on the bus, a port for a third, and a monitor."""
    given = ["-object", f"memory-backend-memfd,id=mem,size={GUEST_MEMORY},share=on", "-machine", "memory-backend=mem"]
    for name in COLD:
        given += ["-device", json.dumps(target.device(name))]
    return [*given, "-device", "pcie-root-port,id=port1,chassis=1", *qmp.options(target.monitor())]


def disks(guest: Guest, target: FunctionsTarget, nsid: int) -> dict[str, str]:
    """A namespace's disk by the function through which it is reached. Of functions without it, none."""
    script = "cd /sys/class/nvme && for c in nvme*; do for d in $c/nvme*n*; do echo $(cat $c/cntlid) $(cat $d/nsid) ${d##*/}; done; done 2>/dev/null"
    rows = [line.split() for line in guest.run(script).output.splitlines()]
    found = {int(row[0]): f"/dev/{row[2]}" for row in rows if len(row) == 3 and row[1] == str(nsid)}
    names = {function["cntlid"]: name for name, function in target.functions().items() if "cntlid" in function}
    return {names[cntlid]: disk for cntlid, disk in found.items() if cntlid in names}


def test_shared(report: Report, guest: Guest, target: FunctionsTarget) -> None:
    with report.test("two functions of a subsystem are two controllers of the guest"):
        wait_for("both have the disk", lambda: set(disks(guest, target, 1)) == set(COLD), SEEN_SECONDS_MAX)
        states = {name: function["state"] for name, function in target.functions().items()}
        expect("states", states, dict.fromkeys(COLD, "FUNCTION_STATE_CONNECTED"))
    with report.test("what is written through one is read through the other, both ways"):
        first, second = (disks(guest, target, 1)[name] for name in COLD)
        for written, read in ((first, second), (second, first)):
            script = (
                "dd if=/dev/urandom of=/tmp/data bs=1M count=8 status=none && "
                f"dd if=/tmp/data of={written} bs=64k oflag=direct status=none && "
                f"dd if={read} bs=64k iflag=direct count=128 status=none | cmp - /tmp/data"
            )
            guest.run(script).checked()


def test_subsystem_reset(report: Report, guest: Guest, target: FunctionsTarget) -> None:
    with report.test("nvme subsystem-reset through one function: both are reset, a host that came over TCP connects again, and all three go on"):
        disk = next(iter(disks(guest, target, 1).values()))
        before = guest.run(f"dd if={disk} bs=1M count=8 iflag=direct status=none | sha256sum").checked()
        guest.run(f"modprobe nvme_tcp && nvme connect -t tcp -a 10.0.2.2 -s {target.port} -n {NQN} --reconnect-delay=1 --ctrl-loss-tmo=60").checked()
        names = guest.run("cd /sys/class/nvme && grep -l tcp nvme*/transport; grep -l pcie nvme*/transport").checked().split()
        over_tcp, *functions = [name.split("/")[0] for name in names]

        def state(name: str) -> str:
            return guest.run(f"cat /sys/class/nvme/{name}/state").output.strip()

        expect("states", [state(name) for name in (over_tcp, *functions)], ["live"] * 3)
        guest.run(f"nvme subsystem-reset /dev/{functions[0]}").checked()
        # The host of a function notices with its next command, or is told to look.
        for name in functions:
            guest.run(f"nvme reset /dev/{name}", 60).checked()
        wait_for("the TCP host has noticed", lambda: guest.run("dmesg | grep -qiE 'nvme.*reconnect'").status == 0, 30.0)
        wait_for("all are live", lambda: [state(name) for name in (over_tcp, *functions)] == ["live"] * 3, 60.0)
        for path in disks(guest, target, 1).values():
            after = guest.run(f"dd if={path} bs=1M count=8 iflag=direct status=none | sha256sum").checked()
            expect(f"what is read of {path}", after, before)
        guest.run(f"nvme disconnect -d {over_tcp}").checked()
        expect_that("the log says it", "resets the NVM subsystem" in target.log())


def test_hotplug(report: Report, guest: Guest, target: FunctionsTarget, monitor: Monitor) -> None:
    with report.test("a function that is made while the guest runs is plugged in, and has the same bytes"):
        target.create(HOT)
        monitor.run("device_add", id=HOT_DEVICE, bus="port1", **target.device(HOT))
        wait_for("the third has the disk", lambda: HOT in disks(guest, target, 1), SEEN_SECONDS_MAX)
        guest.run(f"dd if={disks(guest, target, 1)[HOT]} bs=64k iflag=direct count=128 status=none | cmp - /tmp/data").checked()


def test_namespaces(report: Report, guest: Guest, target: FunctionsTarget) -> None:
    everywhere = {*COLD, HOT}

    def sizes(nsid: int) -> list[int]:
        return [int(guest.run(f"blockdev --getsize64 {disk}").checked()) for disk in disks(guest, target, nsid).values()]

    with report.test("a namespace that is attached appears at every function"):
        file = target.folder / "disk.raw"
        file.write_bytes(bytes(8 << 20))
        target.snapctl("namespace", "attach", NQN, f"file:{file}", "--nsid", "5")
        wait_for("it is there", lambda: set(disks(guest, target, 5)) == everywhere, SEEN_SECONDS_MAX)
        expect("sizes", sizes(5), [8 << 20] * 3)
    with report.test("its new size is seen at every function, and its new end is written and read"):
        target.snapctl("namespace", "resize", NQN, "5", "--size", "16MiB")
        wait_for("it has grown", lambda: sizes(5) == [16 << 20] * 3, SEEN_SECONDS_MAX)
        found = disks(guest, target, 5)
        script = (
            f"dd if=/tmp/data of={found[HOT]} bs=1M seek=15 count=1 oflag=direct status=none && "
            f"dd if={found[COLD[0]]} bs=1M skip=15 count=1 iflag=direct status=none | cmp -n 1048576 - /tmp/data"
        )
        guest.run(script).checked()
    with report.test("a namespace that is detached under I/O goes at every function: an error, no hang, and the other disk goes on"):
        disk = disks(guest, target, 5)[HOT]
        job = f"fio --name=d --filename={disk} --rw=randrw --bs=16k --direct=1 --ioengine=libaio --iodepth=8 --time_based --runtime=60 --size=16M --minimal"
        guest.run(f"rm -f /tmp/end; (({job}; echo status $?) > /tmp/fio 2>&1; touch /tmp/end) & true").checked()

        def requests() -> int:
            fields = guest.run(f"cat /sys/block/{disk.removeprefix('/dev/')}/stat").checked().split()
            return int(fields[0]) + int(fields[4])

        before = requests()
        wait_for("I/O goes on", lambda: requests() > before + 64, 20.0)
        target.snapctl("namespace", "detach", NQN, "5")
        guest.run("until test -e /tmp/end; do sleep 0.1; done", 40.0).checked()
        said = guest.run("cat /tmp/fio").checked()
        expect_that(f"fio was told: {said[-300:]}", "status 0" not in said and "error" in said.lower())
        wait_for("it is gone", lambda: not disks(guest, target, 5), SEEN_SECONDS_MAX)
        guest.run(f"dd if={disks(guest, target, 1)[COLD[0]]} of=/dev/null bs=1M count=32 iflag=direct").checked()


def test_hosts(report: Report, guest: Guest, target: FunctionsTarget) -> None:
    hosts = {name: target.asked("function", "show", name)["function"]["host_nqn"] for name in (*COLD, HOT)}

    def read_bytes(name: str) -> int:
        rows = target.asked("stat", "--totals", "--host", hosts[name])["hosts"]
        return sum(int(row["read_bytes"]) for row in rows if row["nsid"] == 1)

    with report.test("stat counts what each function has done by itself, byte for byte"):
        found = disks(guest, target, 1)
        before = {name: read_bytes(name) for name in hosts}
        for name, megabytes in zip(hosts, (3, 5, 7), strict=True):
            guest.run(f"dd if={found[name]} of=/dev/null bs=1M count={megabytes} iflag=direct status=none").checked()
        expect("bytes", [read_bytes(name) - before[name] for name in hosts], [3 << 20, 5 << 20, 7 << 20])
    with report.test("a namespace that is shown to one function is there alone, and a list of hosts ends none"):
        file = target.folder / "own.raw"
        file.write_bytes(bytes(4 << 20))
        target.snapctl("namespace", "attach", NQN, f"file:{file}", "--nsid", "6", "--host", hosts[COLD[1]])
        wait_for("it is there", lambda: set(disks(guest, target, 6)) == {COLD[1]}, SEEN_SECONDS_MAX)
        target.snapctl("namespace", "visibility", NQN, "6", "--host", hosts[HOT])
        wait_for("it is another's", lambda: set(disks(guest, target, 6)) == {HOT}, SEEN_SECONDS_MAX)
        before = {name: function["cntlid"] for name, function in target.functions().items()}
        target.snapctl("host", "allow", NQN, "nqn.2026-11.org.example:trainer1", "--only")
        guest.run(f"dd if={disks(guest, target, 6)[HOT]} of=/dev/null bs=1M count=4 iflag=direct status=none").checked()
        expect("controllers", {name: function.get("cntlid") for name, function in target.functions().items()}, before)
        target.snapctl("host", "allow", NQN, "--any-host")
        target.snapctl("namespace", "detach", NQN, "6")
        wait_for("it is gone", lambda: not disks(guest, target, 6), SEEN_SECONDS_MAX)


def test_deleted(report: Report, guest: Guest, target: FunctionsTarget) -> None:
    # QEMU 11.1 ends by an assertion of its own where the socket closes while it sends: the guest gives the device up first.
    with report.test("removed in the guest and deleted, it takes its own disk along, and no other"):
        found = disks(guest, target, 1)
        controller = found[HOT].removeprefix("/dev/").rsplit("n", 1)[0]
        guest.run(f"echo 1 > $(realpath /sys/class/nvme/{controller}/device)/remove").checked()
        target.snapctl("function", "delete", HOT)
        expect("functions", set(target.functions()), set(COLD))
        expect_that("its socket is gone", not target.socket_of(HOT).exists())
        for name in COLD:
            guest.run(f"dd if={found[name]} bs=64k iflag=direct count=128 status=none | cmp - /tmp/data").checked()
        expect("the disks that are left", set(disks(guest, target, 1)), set(COLD))
        target.expect_alive()
