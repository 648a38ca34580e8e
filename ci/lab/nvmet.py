"""Linux's own NVMe target (nvmet) in a guest, set up through configfs: a foreign target for hosts, and for the project's initiator.

    with start_guest(300, forward=(4420, 4421)) as guest:
        target = LinuxSubsystem(guest, "nqn.2014-08.org.example:disk")
        add_ramdisks(guest, count=1, size_mib=32)
        target.add_namespace(1, "/dev/ram0")
        for port_id, service in ((1, 4420), (2, 4421)):
            target.listen(port_id, "tcp", "10.0.2.15", service)
        target.set_ana_state(2, "non-optimized")
        # nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:disk?nsid=1

Digests are the host's to ask for: nvmet agrees to them.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from .guest import Guest

# Where QEMU's user network has the guest: what is forwarded from the build machine comes to this address.
USER_NETWORK_IPV4 = "10.0.2.15"
_ROOT = "/sys/kernel/config/nvmet"


@dataclass
class LinuxSubsystem:
    """One subsystem, open to any host. Its namespaces are in ANA group 1 where nothing else is said, which is optimized on each port."""

    guest: Guest
    nqn: str

    def __post_init__(self) -> None:
        self._path = f"{_ROOT}/subsystems/{self.nqn}"
        self._do(f"""
            modprobe -a nvmet configfs
            mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
            mkdir {self._path}
            echo 1 >{self._path}/attr_allow_any_host
            echo xio-lab-linux >{self._path}/attr_serial
        """)

    def add_namespace(self, nsid: int, device: str, ana_group: int = 1) -> None:
        """Its identifiers follow from the NSID, so that they are the same in every run."""
        path = f"{self._path}/namespaces/{nsid}"
        identifier = f"6c8a4f6e-9d0b-4a55-8b8e-{nsid:012x}"
        self._do(f"""
            mkdir {path}
            echo {device} >{path}/device_path
            echo {identifier} >{path}/device_uuid
            echo {identifier} >{path}/device_nguid
            echo {ana_group} >{path}/ana_grpid
            echo 1 >{path}/enable
        """)

    def listen(self, port_id: int, transport: str, address: str, service: int) -> None:
        """`transport`: "tcp" or "rdma". From then on hosts reach it there."""
        path = f"{_ROOT}/ports/{port_id}"
        # The link has to be absolute.
        self._do(f"""
            modprobe nvmet_{transport}
            mkdir {path}
            echo {transport} >{path}/addr_trtype
            echo ipv{ipaddress.ip_address(address).version} >{path}/addr_adrfam
            echo {address} >{path}/addr_traddr
            echo {service} >{path}/addr_trsvcid
            ln -s {self._path} {path}/subsystems/{self.nqn}
        """)

    def stop_listening(self, port_id: int) -> None:
        """Ends the controllers that came by this port."""
        path = f"{_ROOT}/ports/{port_id}"
        self._do(f"""
            rm {path}/subsystems/{self.nqn}
            for group in {path}/ana_groups/*; do [ ${{group##*/}} = 1 ] || rmdir $group; done
            rmdir {path}
        """)

    def set_ana_state(self, port_id: int, state: str, ana_group: int = 1) -> None:
        """`state`: optimized, non-optimized, inaccessible, persistent-loss or change. Hosts are told."""
        path = f"{_ROOT}/ports/{port_id}/ana_groups/{ana_group}"
        self._do(f"[ -d {path} ] || mkdir {path}\necho {state} >{path}/ana_state")

    def _do(self, script: str) -> None:
        self.guest.run(f"set -e\n{script}").checked()


def add_ramdisks(guest: Guest, count: int, size_mib: int) -> None:
    """/dev/ram0 and so on, full of zeros. They can be made once in a guest."""
    guest.run(f"modprobe brd rd_nr={count} rd_size={size_mib << 10} max_part=1").checked()
