"""Programs that run beside each other, what each took of the processors, and file systems that they mount."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
START_SECONDS_MAX = 30.0


class Failed(Exception):
    """A program did not do what it was started for; says what it printed."""


def run(*command: str | Path) -> str:
    done = subprocess.run([str(word) for word in command], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(str(word) for word in command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def cpu_seconds(process: int) -> float:
    """User and system time of a process so far, all of its threads."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


class Programs:
    """The daemons of one side, host or target."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[str]] = []

    @contextmanager
    def running(self, *command: str | Path) -> Iterator[subprocess.Popen[str]]:
        """While this lasts, the program runs; its standard output is the caller's to read."""
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
        self._running.append(process)
        try:
            yield process
        finally:
            self._running.remove(process)
            process.terminate()
            process.wait(START_SECONDS_MAX)

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(process.pid) for process in self._running)

    @contextmanager
    def mounted(self, folder: Path, *command: str | Path) -> Iterator[Path]:
        """While this lasts, what the program mounts on `folder`, a new one. It stays in the foreground."""
        folder.mkdir()
        before = os.stat(folder).st_dev
        with self.running(*command) as process:
            ends = time.monotonic() + START_SECONDS_MAX
            while os.stat(folder).st_dev == before:
                if process.poll() is not None or time.monotonic() > ends:
                    raise Failed(f"{' '.join(str(word) for word in command)} mounted nothing")
                time.sleep(0.01)
            try:
                yield folder
            finally:
                subprocess.run(["umount", folder], check=False)
        folder.rmdir()


class Led:
    """A program that waits for a line before each of its steps, and says one when that is done."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._in, self._out = process.stdin, process.stdout

    def go_on(self) -> None:
        self._in.write("\n")
        self._in.flush()

    def heard(self) -> str:
        if not (line := self._out.readline()):
            raise Failed("a reader failed")
        return line.rstrip("\n")


@contextmanager
def led(*command: str | Path) -> Iterator[Led]:
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Led(process)
    finally:
        # It has said all, or somebody failed: then it holds a mount that is about to go.
        process.kill()
        process.wait()
