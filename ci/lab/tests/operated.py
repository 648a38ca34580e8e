"""A snap-target that is operated while hosts are connected: from a configuration file, with snapctl."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .report import Unexpected
from .target import START_SECONDS_MAX, STOP_SECONDS_MAX, accepts, free_port

NQN = "nqn.2014-08.org.nvmexpress:xio-operated"
ANSWER_SECONDS_MAX = 60


class OperatedTarget:
    """Two reactors, one subsystem that names its hosts, and the folder that its files are in."""

    def __init__(self, snap_target: Sequence[str], snapctl: Sequence[str], folder: Path, hosts: Sequence[str]) -> None:
        self.port = free_port()
        self.folder = folder
        self._snapctl = [*snapctl, "--socket", str(folder / "admin.sock")]
        self._log = folder / "target.log"
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
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < until and self._process.poll() is None:
            if accepts(self.port) and (self.folder / "admin.sock").exists():
                return
            time.sleep(0.02)
        raise Unexpected(f"snap-target does not listen on port {self.port}; it says:\n{self.log_tail()}")

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

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """SIGTERM: it drains and ends with status 0."""
        self.expect_alive()
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_SECONDS_MAX + 15)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Unexpected("snap-target did not end after SIGTERM") from None
        if status != 0:
            raise Unexpected(f"snap-target ended with status {status} after SIGTERM:\n{self.log_tail()}")

    def expect_alive(self) -> None:
        if self._process is None or self._process.poll() is not None:
            raise Unexpected(f"snap-target has ended by itself; it says:\n{self.log_tail()}")
        if "panicked" in (said := self._log.read_text(errors="replace")):
            raise Unexpected(f"snap-target panicked:\n{said[-3000:]}")

    def log_tail(self) -> str:
        said = self._log.read_text(errors="replace") if self._log.is_file() else ""
        return "\n".join(said.splitlines()[-30:])
