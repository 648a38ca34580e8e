"""QEMU's machine protocol: a guest gets devices while it runs.

    start_guest(..., options=qmp.options(path))
    with Monitor(path) as monitor:
        monitor.run("device_add", driver="vfio-user-pci", id="hot", bus="port1", ...)
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import TracebackType
from typing import Any

# Seconds, beside builds that take the whole machine.
ANSWER_SECONDS_MAX = 60.0


class MonitorError(Exception):
    """QEMU refused a command, or ended. The message holds QEMU's words."""


def options(path: Path) -> list[str]:
    """QEMU's, for a monitor at this path."""
    return ["-qmp", f"unix:{path},server=on,wait=off"]


class Monitor:
    """A connection to a running QEMU. Events that nobody waits for are dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Monitor:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_SECONDS_MAX)
        self._socket.connect(str(self._path))
        self._lines = self._socket.makefile("r", encoding="utf-8")
        self._next()
        self.run("qmp_capabilities")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lines.close()
        self._socket.close()

    def run(self, command: str, **arguments: Any) -> Any:
        """What the command returns."""
        self._socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        while True:
            answer = self._next()
            if "error" in answer:
                raise MonitorError(f"{command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]

    def _next(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise MonitorError("QEMU has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer
