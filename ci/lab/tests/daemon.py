"""A snap-target process: started, killed, stopped, and what it said."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .report import Unexpected

START_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 10.0
ANSWER_SECONDS_MAX = 60


class Daemon:
    """Listens on 127.0.0.1:`port` while it runs. Its output goes to `log`, after what an earlier start has said there."""

    # Besides what a drain takes, which a daemon with hosts under load uses up.
    stop_seconds_max = STOP_SECONDS_MAX

    def __init__(self, log: Path) -> None:
        self.port = free_port()
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, command: Sequence[str], *sockets: Path) -> None:
        """Returns when it listens, and these Unix sockets are there."""
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < until and self._process.poll() is None:
            if accepts(self.port) and all(path.exists() for path in sockets):
                return
            time.sleep(0.02)
        raise Unexpected(f"snap-target does not listen on port {self.port}; it says:\n{self.log_tail()}")

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """SIGTERM: it must end by itself, with status 0."""
        self.expect_alive()
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(self.stop_seconds_max)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Unexpected(f"snap-target did not end within {self.stop_seconds_max:.0f} s of SIGTERM") from None
        if status != 0:
            raise Unexpected(f"snap-target ended with status {status} after SIGTERM:\n{self.log_tail()}")

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """Its exit status, when it has ended by itself."""
        assert self._process is not None
        return self._process.wait(self.stop_seconds_max)

    def processor_seconds(self) -> float:
        """What it has used of processors, in the kernel and outside."""
        assert self._process is not None
        # proc(5): utime and stime are the 14th and 15th field; the 2nd may have spaces and ends with a parenthesis.
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def sleeps(self) -> int:
        """How often the thread that has used most of a processor has waited for something."""
        assert self._process is not None
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        busiest = max(tasks, key=lambda task: int((task / "schedstat").read_text().split()[0]))
        lines = (busiest / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))

    def expect_alive(self) -> None:
        if self._process is None or self._process.poll() is not None:
            raise Unexpected(f"snap-target has ended by itself; it says:\n{self.log_tail()}")
        if "panicked" in (said := self._log.read_text(errors="replace")):
            raise Unexpected(f"snap-target panicked:\n{said[-3000:]}")

    def log(self) -> str:
        """Empty before the first start."""
        return self._log.read_text(errors="replace") if self._log.is_file() else ""

    def log_tail(self) -> str:
        return "\n".join(self.log().splitlines()[-20:])


class Administered(Daemon):
    """One that snapctl reaches: `snapctl` is the program with what it needs to find the daemon."""

    def __init__(self, log: Path, snapctl: Sequence[str]) -> None:
        super().__init__(log)
        self._snapctl = list(snapctl)

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


def free_port() -> int:
    """A port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False
