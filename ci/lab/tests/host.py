"""The NVMe host in the guest: nvme-cli, sysfs, and the lab's own `blocks` program."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.guest import Guest, Result

from .report import Unexpected, wait_for
from .target import NQN, Target

BLOCKS_PROGRAM = Path(__file__).with_name("blocks.py")
IO_QUEUES = 4
KEEP_ALIVE_S = 5
CONNECT_SECONDS_MAX = 30
RECONNECT_SECONDS_MAX = 30.0


@dataclass
class Host:
    """Where a method names a status, it is the NVMe status field as nvme-cli prints it: type and code, without Do Not Retry."""

    guest: Guest
    target: Target
    # Block devices by NSID, as they were after the last connect.
    devices: dict[int, str] = field(default_factory=dict)

    def sh(self, script: str, timeout_s: float = 60.0) -> Result:
        return self.guest.run(script, timeout_s)

    def json(self, command: str) -> Any:
        """What an nvme-cli command prints as JSON."""
        printed = self.sh(f"nvme {command} -o json").checked()
        return json.loads(printed[min(printed.find(c) for c in "[{" if c in printed) :])

    def address(self) -> str:
        return f"-t tcp -a 10.0.2.2 -s {self.target.port}"

    def connect(self, namespaces: int, *options: str) -> None:
        """Several I/O queues of each kind; a lost controller is tried again every second, for ever."""
        self.sh(
            f"timeout {CONNECT_SECONDS_MAX} nvme connect {self.address()} -n {NQN} "
            "--nr-io-queues=2 --nr-write-queues=1 --nr-poll-queues=1 "
            f"--keep-alive-tmo={KEEP_ALIVE_S} --reconnect-delay=1 --ctrl-loss-tmo=-1 {shlex.join(options)}"
        ).checked()
        self.wait_for(f"{namespaces} namespaces appear", lambda: len(self._find_devices()) == namespaces)
        self.devices = self._find_devices()

    def disconnect(self) -> str:
        return self.sh(f"nvme disconnect -n {NQN}").checked()

    def controller(self) -> str:
        """The controller's name, such as nvme0."""
        names = self.sh(f"grep -lx {NQN} /sys/class/nvme/nvme*/subsysnqn | cut -d/ -f5").checked().split()
        if len(names) != 1:
            raise Unexpected(f"the host has {len(names)} controllers of {NQN}")
        return names[0]

    def controller_file(self, name: str) -> str:
        return self.sh(f"cat /sys/class/nvme/{self.controller()}/{name}").checked().strip()

    def device(self, nsid: int) -> str:
        return self.devices[nsid]

    def _find_devices(self) -> dict[int, str]:
        """The multipath heads, which stay while a controller is away."""
        printed = self.sh("cd /sys/block && grep -H . nvme*n*/nsid").output
        found = re.findall(r"^(nvme\d+n\d+)/nsid:(\d+)$", printed, re.MULTILINE)
        return {int(nsid): f"/dev/{name}" for name, nsid in found}

    def blocks(self, command: str, jobs: Iterable[dict[str, object]], timeout_s: float = 180.0) -> Any:
        """Runs the blocks program in the guest; see its head for the commands."""
        script = f"blocks {command} <<'END'\n{json.dumps(list(jobs))}\nEND\n"
        # Without its target the host would wait until the time is out.
        result = self.guest.run(script, timeout_s, watch=self.target.expect_alive)
        return json.loads(result.checked())

    def status_of(self, command: str) -> int:
        """The NVMe status that a command of nvme-cli ends with; 0 where it succeeds."""
        result = self.sh(f"nvme {command}")
        if result.status == 0:
            return 0
        if match := re.search(r"NVMe status: .*\((0x[0-9a-f]+)\)", result.output):
            return int(match.group(1), 16) & 0x7FF
        raise Unexpected(f"nvme {command}: no NVMe status but {result.output.strip()!r}")

    def complaints(self) -> list[str]:
        """What the kernel has complained about since the guest started: I/O errors, digests, identities."""
        pattern = "I/O error|critical [a-z]+ error|protection error|digest error|rejecting I/O|identifiers changed"
        lines = self.sh(f"dmesg | grep -iE {shlex.quote(pattern)}").output.splitlines()
        return [re.sub(r"^\[ *[\d.]+\] ", "", line) for line in lines]

    def wait_for(self, what: str, holds: Callable[[], bool], seconds_max: float = RECONNECT_SECONDS_MAX) -> None:
        wait_for(what, holds, seconds_max)
