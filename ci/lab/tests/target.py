"""The targets that the lab can be pointed at: snap-target, and Linux's own as a foreign reference for the tests themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from lab.guest import Guest
from lab.nvmet import USER_NETWORK_IPV4, LinuxSubsystem
from lab.start import start_guest

from .daemon import Daemon, free_port
from .volumes import Namespace

NQN = "nqn.2014-08.org.nvmexpress:xio-lab"


class Target(Protocol):
    """A target on 127.0.0.1:`port` that can be killed at any moment and started again with the same content."""

    port: int
    lba_bytes: int
    # Whether it serves volumes write-protected. Where it does not, nothing is written to them.
    protects_volumes: bool
    # Whether it has the optional NVM commands.
    has_every_command: bool
    # Tests that do not apply to this target.
    exempt: frozenset[str]

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def stop(self) -> None: ...
    def expect_alive(self) -> None: ...
    def log_tail(self) -> str: ...


class SnapTarget(Daemon):
    """snap-target as a user starts it; by turns with one reactor and with two, so that its queues share one and do not."""

    lba_bytes = 4096
    protects_volumes = True
    has_every_command = True
    exempt: frozenset[str] = frozenset()

    def __init__(self, command: Sequence[str], namespaces: Sequence[Namespace], log: Path) -> None:
        super().__init__(log)
        self.program = command
        self._command = [*command, *(namespace.argument for namespace in namespaces)]
        self._command += ["--listen", f"127.0.0.1:{self.port}", "--nqn", NQN]
        self._starts = 0

    def start(self) -> None:
        command = [*self._command, "--reactors", str(1 + self._starts % 2)]
        self._starts += 1
        self.run(command)


class LinuxTarget:
    """Linux's nvmet in a guest of its own, holding the same bytes. A test that it fails is suspect itself."""

    lba_bytes = 512
    protects_volumes = False
    has_every_command = False
    exempt = frozenset({
        # Its disks are in the memory of its guest.
        "the raw file holds what was written",
        "a flushed write survives kill -9",
        "raw memory is a new namespace after a restart, since its content is lost",
        # What Linux 6.12 answers otherwise than the specification, or leaves out.
        "a read beyond the end: LBA Out of Range, and an entry in the error log",
        "mandatory log pages answer",
        "mandatory features answer",
        "set-feature is kept until it is set again",
        "refused: an unknown log page",
        "refused: a namespace beyond nn",
    })

    def __init__(self, namespaces: Sequence[Namespace], folder: Path) -> None:
        self.port = free_port()
        self._guest: Guest | None = None
        self._folder = folder
        for namespace in namespaces:
            content = (namespace.content or b"").ljust(namespace.size_bytes, b"\0")
            (folder / f"{namespace.nsid}.img").write_bytes(content)
        self._namespaces = namespaces

    def start(self) -> None:
        self._guest = start_guest(900, share=self._folder, forward=(self.port,))
        guest = self._guest.__enter__()
        guest.run(f"modprobe loop max_loop={len(self._namespaces)}").checked()
        subsystem = LinuxSubsystem(guest, NQN)
        for nsid in (namespace.nsid for namespace in self._namespaces):
            device = f"/dev/loop{nsid - 1}"
            guest.run(f"cp /share/{nsid}.img /tmp/{nsid}.img && losetup {device} /tmp/{nsid}.img").checked()
            subsystem.add_namespace(nsid, device)
        subsystem.listen(1, "tcp", USER_NETWORK_IPV4, self.port)

    def kill(self) -> None:
        if self._guest is not None:
            self._guest.close()

    def stop(self) -> None:
        self.kill()

    def expect_alive(self) -> None:
        assert self._guest is not None
        self._guest.run("true").checked()

    def log_tail(self) -> str:
        return self._guest.console()[-2000:] if self._guest else ""
