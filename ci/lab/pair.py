"""Two or three guests on a switch of the test's own, with soft-RoCE (rdma_rxe) on each.

    with two_guests(deadline_s=300, seed=1) as pair:
        pair.b.run(f"ping -c 1 {pair.a.ipv4}").checked()
        with pair.switch.fault(Cut(), "a", "b", both=True):
            ...

Besides, each has QEMU's user network (eth0), as every guest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from .guest import Guest, Result
from .network.switch import Switch
from .start import start_guest

# Room for RoCE's packets of 4,096 bytes; QEMU's device has 1,500 where nothing is said.
MTU = 4500
MEMORY_MIB = 768


@dataclass
class Machine:
    """A guest: its port at the switch, its addresses there."""

    guest: Guest
    port: str
    mac: str
    ipv4: str
    ipv6: str

    def run(self, script: str, timeout_s: float = 60.0, watch: Callable[[], None] = lambda: None) -> Result:
        return self.guest.run(script, timeout_s, watch)

    def do(self, script: str, timeout_s: float = 60.0) -> str:
        """The output of a script that must succeed."""
        return self.run(script, timeout_s).checked()

    def address(self, family: str) -> str:
        """`family` is "ipv4" or "ipv6"."""
        return {"ipv4": self.ipv4, "ipv6": self.ipv6}[family]


@dataclass
class Pair:
    seed: int
    switch: Switch
    a: Machine
    b: Machine


@dataclass
class Trio(Pair):
    c: Machine


@contextmanager
def two_guests(deadline_s: float, seed: int, capture: Path | None = None, forward: Sequence[int] = (), share: Path | None = None) -> Iterator[Pair]:
    """Both up, connected, with rxe0 on their port. `forward`: ports of the build machine that lead to guest a. `share`: a folder that both have as /share."""
    with _guests(("a", "b"), deadline_s, seed, capture, forward, share) as (switch, machines):
        yield Pair(seed, switch, *machines)


@contextmanager
def three_guests(deadline_s: float, seed: int, share: Path | None = None) -> Iterator[Trio]:
    """The same with a third one."""
    with _guests(("a", "b", "c"), deadline_s, seed, None, (), share) as (switch, machines):
        yield Trio(seed, switch, *machines)


@contextmanager
def _guests(
    ports: tuple[str, ...], deadline_s: float, seed: int, capture: Path | None, forward: Sequence[int], share: Path | None
) -> Iterator[tuple[Switch, list[Machine]]]:
    with ExitStack() as stack:
        switch = stack.enter_context(Switch(ports, seed, capture))
        machines = []
        for number, port in enumerate(ports, start=1):
            mac = f"52:54:00:00:00:{number:02x}"
            options = switch.qemu_options(port, mac, MTU)
            forwarded = forward if port == "a" else ()
            guest = start_guest(deadline_s, share=share, memory_mib=MEMORY_MIB, cpus=1, forward=forwarded, options=options)
            guest.start()
            stack.callback(guest.close)
            machines.append(Machine(guest, port, mac, f"192.0.2.{number}", f"fd00::{number}"))
        for machine in machines:
            machine.guest.wait_until_up()
            machine.do(_network_script(machine))
        yield switch, machines


def _network_script(machine: Machine) -> str:
    # Without duplicate address detection the IPv6 address is usable at once.
    return f"""set -e
        path=$(grep -l {machine.mac} /sys/class/net/*/address)
        port=$(basename ${{path%/address}})
        echo 0 >/proc/sys/net/ipv6/conf/$port/accept_dad
        ip link set $port mtu {MTU} up
        ip addr add {machine.ipv4}/24 dev $port
        ip addr add {machine.ipv6}/64 dev $port
        modprobe -a rdma_rxe rdma_ucm
        rdma link add rxe0 type rxe netdev $port
    """
