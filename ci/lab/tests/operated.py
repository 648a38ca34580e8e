"""A snap-target that is operated while hosts are connected: from a configuration file, with snapctl."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .daemon import STOP_SECONDS_MAX, Daemon
from .report import Unexpected

NQN = "nqn.2014-08.org.nvmexpress:xio-operated"
ANSWER_SECONDS_MAX = 60
# `drain` of the configuration where it is left out: a host that never pauses uses it up.
DRAIN_SECONDS = 10.0


class OperatedTarget(Daemon):
    """Two reactors, one subsystem that names its hosts, and the folder that its files are in."""

    stop_seconds_max = DRAIN_SECONDS + STOP_SECONDS_MAX

    def __init__(self, snap_target: Sequence[str], snapctl: Sequence[str], folder: Path, hosts: Sequence[str]) -> None:
        super().__init__(folder / "target.log")
        self.folder = folder
        self._socket = folder / "admin.sock"
        self._snapctl = [*snapctl, "--socket", str(self._socket)]
        config = folder / "target.toml"
        names = ", ".join(f'"{host}"' for host in hosts)
        config.write_text(f"""
[target]
reactors = 2
state = "state"
log = "info"
[[listener]]
address = "127.0.0.1:{self.port}"
[[subsystem]]
nqn = "{NQN}"
hosts = [{names}]
[admin]
socket = "admin.sock"
""")
        self._command = [*snap_target, "--config", str(config)]

    def start(self) -> None:
        self.run(self._command, self._socket)

    def snapctl(self, *arguments: str) -> str:
        """What snapctl prints; it must succeed."""
        result = self.try_snapctl(*arguments)
        if result.returncode != 0:
            raise Unexpected(f"snapctl {' '.join(arguments)} ended with {result.returncode}: {result.stderr.strip()}")
        return result.stdout

    def try_snapctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*self._snapctl, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS_MAX, check=False)

    def asked(self, *arguments: str) -> Any:
        """What snapctl prints as JSON."""
        return json.loads(self.snapctl(*arguments, "--json"))
