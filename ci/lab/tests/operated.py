"""A snap-target that is operated while hosts are connected: from a configuration file, with snapctl."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .daemon import STOP_SECONDS_MAX, Administered

NQN = "nqn.2014-08.org.nvmexpress:xio-operated"
# `drain` of the configuration where it is left out: a host that never pauses uses it up.
DRAIN_SECONDS = 10.0


class OperatedTarget(Administered):
    """Two reactors, one subsystem that names its hosts, and the folder that its files are in."""

    stop_seconds_max = DRAIN_SECONDS + STOP_SECONDS_MAX

    def __init__(self, snap_target: Sequence[str], snapctl: Sequence[str], folder: Path, hosts: Sequence[str]) -> None:
        self.folder = folder
        self._socket = folder / "admin.sock"
        super().__init__(folder / "target.log", [*snapctl, "--socket", str(self._socket)])
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
