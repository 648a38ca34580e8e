"""Two hosts in one guest, each with a controller, block devices and a reservation key of its own.

The kernel joins the paths of one subsystem into one disk, whichever host they belong to, so it is loaded again without multipath.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .host import NQN, Host

HOSTS = (
    ("nqn.2026-11.io.example:a", "aaaaaaaa-0000-4000-8000-00000000000a", 0xA1),
    ("nqn.2026-11.io.example:b", "bbbbbbbb-0000-4000-8000-00000000000b", 0xB2),
)


@dataclass(frozen=True)
class Peer:
    """One of the hosts: its controller, its disk, its key. What it asks for ends with an NVMe status."""

    host: Host
    controller: str
    device: str
    nsid: int
    key: int

    def register(self, options: str = "") -> int:
        return self.status_of(f"resv-register {self.device} --nrkey={self.key:#x} --rrega=0 {options}")

    def acquire(self, rtype: int, action: int = 0, preempt: int = 0) -> int:
        keys = f"--crkey={self.key:#x} --prkey={preempt:#x}"
        return self.status_of(f"resv-acquire {self.device} {keys} --rtype={rtype} --racqa={action}")

    def release(self, rtype: int, action: int = 0) -> int:
        return self.status_of(f"resv-release {self.device} --crkey={self.key:#x} --rtype={rtype} --rrela={action}")

    def report(self) -> tuple[int, dict[int, bool]]:
        """RTYPE, and of each key whether its host holds the reservation."""
        printed = self.host.json(f"resv-report {self.device} --eds")
        registrants = printed.get("regctlext") or printed.get("regctl_ext") or []
        return printed["rtype"], {entry["rkey"]: entry["rcsts"] & 1 == 1 for entry in registrants}

    def write(self, lba: int = 0) -> int:
        block = self.host.target.lba_bytes
        return self.status_of(f"write {self.device} -s {lba} -c 0 -z {block} -d /dev/zero")

    def read(self, lba: int = 0) -> int:
        block = self.host.target.lba_bytes
        return self.status_of(f"read {self.device} -s {lba} -c 0 -z {block} -d /dev/null")

    def protect(self, state: int, options: str = "") -> int:
        return self.status_of(f"set-feature {self.device} -n {self.nsid} -f 0x84 -V {state} {options}")

    def feature(self, feature: int) -> int:
        """The value of one that belongs to the namespace."""
        printed = self.host.sh(f"nvme get-feature {self.device} -n {self.nsid} -f {feature:#x}").checked()
        return int(printed.rpartition(":")[2], 0)

    def read_only(self) -> bool:
        """Whether the kernel takes its disk for one."""
        return self.host.sh(f"cat /sys/block/{self.device[5:]}/ro").checked().strip() == "1"

    def state(self) -> str:
        return self.host.sh(f"cat /sys/class/nvme/{self.controller}/state").output.strip()

    def status_of(self, command: str) -> int:
        return self.host.status_of(command)


@contextmanager
def two_peers(host: Host, nsid: int) -> Iterator[tuple[Peer, Peer]]:
    """Both connected; a lost controller is tried again every second. Nothing is connected before or afterwards."""
    _load(host, multipath=False)
    try:
        a, b = (_connect(host, nsid, *who) for who in HOSTS)
        yield a, b
    finally:
        host.disconnect()
        _load(host, multipath=True)


def _load(host: Host, multipath: bool) -> None:
    value = "Y" if multipath else "N"
    host.sh(f"set -e; modprobe -r nvme-tcp nvme-fabrics nvme-core; modprobe nvme-core multipath={value}; modprobe nvme-tcp").checked()


def _connect(host: Host, nsid: int, nqn: str, host_id: str, key: int) -> Peer:
    host.sh(
        f"nvme connect {host.address()} -n {NQN} --hostnqn={nqn} --hostid={host_id} --nr-io-queues=2 --keep-alive-tmo=5 "
        "--reconnect-delay=1 --ctrl-loss-tmo=-1"
    ).checked()
    controller = host.sh(f"grep -lx {nqn} /sys/class/nvme/nvme*/hostnqn | cut -d/ -f5").checked().strip()
    host.wait_for(f"{controller} has namespace {nsid}", lambda: _device(host, controller, nsid) is not None)
    device = _device(host, controller, nsid)
    assert device is not None
    return Peer(host, controller, device, nsid, key)


def _device(host: Host, controller: str, nsid: int) -> str | None:
    """The number in a disk's name is not the NSID: the kernel counts as it finds them, in any order."""
    names = host.sh(f"grep -lx {nsid} /sys/block/{controller}n*/nsid | cut -d/ -f4").output.split()
    return f"/dev/{names[0]}" if len(names) == 1 else None
