"""A running guest: start it, give it scripts, take their output and exit status, end it.

    with Guest(ensure_lab(), deadline_s=120) as guest:
        result = guest.run("uname -r")

A guest never outlives its deadline, its `with` block, or the program that started it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO

from .accel import Accelerator
from .cpio import Cpio
from .installed import Lab

# What one script may print; more is an error of the script.
OUTPUT_BYTES_MAX = 64 << 20
# Seconds where nothing else runs; minutes beside builds that take the whole machine.
BOOT_SECONDS_MAX = 180.0


class GuestError(Exception):
    """The guest did not start, died, or did not answer in time. The message holds the end of its console."""


@dataclass(frozen=True)
class Result:
    """What a script in the guest left: its exit status, and its output with errors among it."""

    status: int
    output: str

    def checked(self) -> str:
        """The output of a script that must succeed."""
        if self.status != 0:
            raise GuestError(f"a script in the guest ended with status {self.status}:\n{self.output}")
        return self.output


@dataclass
class Guest:
    """One QEMU process. `files` are added to the initramfs; `share` appears in the guest, read-only, as /share."""

    lab: Lab
    accelerator: Accelerator
    deadline_s: float
    files: Mapping[str, bytes] = field(default_factory=dict)
    share: Path | None = None
    memory_mib: int = 1024
    cpus: int = 2
    # Ports of the build machine's 127.0.0.1 that lead to the same ports of the guest.
    forward: Sequence[int] = ()
    # More of QEMU's options: other devices, a second network.
    options: Sequence[str] = ()
    # The BIOS boots a disk among them, which brings the kernel (lab.bootdisk); `files` and `share` go nowhere then.
    from_disk: bool = False

    def __enter__(self) -> Guest:
        self.start()
        return self.wait_until_up()

    def start(self) -> None:
        """Starts to boot, so that several do it at once; `wait_until_up` must follow. The caller's thread must live on: QEMU ends with it."""
        self._started = time.monotonic()
        self._folder = Path(tempfile.mkdtemp(prefix="xio-lab-"))
        self._expired = False
        try:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(self._folder / "session"))
            self._listener.listen(1)
            modules = self.lab.qemu.path / "usr/lib/x86_64-linux-gnu/qemu"
            with open(self._folder / "qemu.log", "wb") as log, _joined(self.lab.initramfs, self.files) as initramfs:
                self._process = subprocess.Popen(
                    self._command(f"/proc/self/fd/{initramfs.fileno()}"),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(initramfs.fileno(),),
                    env={**os.environ, "QEMU_MODULE_DIR": str(modules)},
                )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._timer = threading.Timer(self.deadline_s, self._expire)
        self._timer.daemon = True
        self._timer.start()

    def wait_until_up(self) -> Guest:
        """Until it takes scripts. One that does not come up is ended."""
        try:
            self._session = self._accept(self._listener)
            self._receive_line(BOOT_SECONDS_MAX)
            self.boot_s = time.monotonic() - self._started
        except BaseException:
            self.close()
            raise
        finally:
            self._listener.close()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def run(self, script: str, timeout_s: float = 60.0, watch: Callable[[], None] = lambda: None) -> Result:
        """Runs a shell script in the guest and waits for its end. Out of time, the guest is ended.

        `watch` is called about every second meanwhile; what it raises ends the guest too: its session is in an unknown state then.
        """
        encoded = script.encode()
        try:
            self._session.settimeout(timeout_s)
            self._session.sendall(b"%d\n" % len(encoded) + encoded)
        except OSError as error:
            raise self._failure(f"the guest takes no script: {error}") from error
        status, length = self._receive_line(timeout_s, watch).split()
        if int(length) > OUTPUT_BYTES_MAX:
            raise self._failure(f"a script in the guest printed {length} bytes; {OUTPUT_BYTES_MAX} are allowed")
        return Result(int(status), self._receive(int(length), timeout_s).decode(errors="replace"))

    @property
    def process_id(self) -> int:
        return self._process.pid

    def console(self) -> str:
        """What the guest's kernel has printed so far."""
        return self._text("console.log")

    def close(self) -> None:
        """Ends the guest at once: it has nothing to save."""
        self._timer.cancel()
        self._process.kill()
        self._process.wait()
        if hasattr(self, "_session"):
            self._session.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _command(self, initramfs: str) -> list[str]:
        qemu, folder = self.lab.qemu, self._folder
        # no_timer_check: on a machine so busy that an emulated timer is late, the kernel would panic over it.
        arguments = "console=ttyS0 loglevel=5 panic=-1 nokaslr mitigations=off random.trust_cpu=on no_timer_check"
        arguments += " lab.share" if self.share else ""
        forwarded = "".join(f",hostfwd=tcp:127.0.0.1:{port}-10.0.2.15:{port}" for port in self.forward)
        command = qemu.command(
            "usr/bin/qemu-system-x86_64",
            *("-L", str(qemu.path / "usr/share/seabios"), "-L", str(qemu.path / "usr/share/qemu")),
            *("-M", "q35", *self.accelerator.options, "-smp", str(self.cpus), "-m", str(self.memory_mib)),
            *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-run-with", "exit-with-parent=on"),
            *(() if self.from_disk else ("-kernel", str(self.lab.vmlinux), "-initrd", initramfs, "-append", arguments)),
            *("-serial", f"file:{folder / 'console.log'}"),
            *("-device", "virtio-serial-pci", "-chardev", f"socket,id=session,path={folder / 'session'}"),
            *("-device", "virtserialport,chardev=session,nr=1"),
            *("-netdev", f"user,id=net{forwarded}", "-device", "virtio-net-pci,netdev=net,romfile="),
        )
        if self.share:
            command += ["-virtfs", f"local,path={self.share},mount_tag=share,security_model=none,readonly=on"]
        return [*command, *self.options]

    def _accept(self, listener: socket.socket) -> socket.socket:
        listener.settimeout(0.2)
        while time.monotonic() - self._started < BOOT_SECONDS_MAX:
            try:
                return listener.accept()[0]
            except TimeoutError:
                if self._process.poll() is not None:
                    break
        raise self._failure("QEMU did not start")

    def _receive_line(self, timeout_s: float, watch: Callable[[], None] = lambda: None) -> str:
        line = b""
        until = time.monotonic() + timeout_s
        while not line.endswith(b"\n"):
            line += self._receive(1, until - time.monotonic(), watch)
        return line.decode()

    def _receive(self, length: int, timeout_s: float, watch: Callable[[], None] = lambda: None) -> bytes:
        received = bytearray()
        until = time.monotonic() + timeout_s
        while len(received) < length:
            try:
                self._session.settimeout(1.0)
                part = self._session.recv(length - len(received))
            except TimeoutError:
                self._keep_waiting(until, timeout_s, watch)
                continue
            except OSError as error:
                raise self._failure(f"the guest's session broke: {error}") from error
            if not part:
                raise self._failure("the guest has ended")
            received += part
        return bytes(received)

    def _keep_waiting(self, until: float, timeout_s: float, watch: Callable[[], None]) -> None:
        if time.monotonic() > until:
            raise self._failure(f"the guest did not answer within {timeout_s:.0f} s")
        try:
            watch()
        except BaseException:
            self._process.kill()
            raise

    def _expire(self) -> None:
        self._expired = True
        self._process.kill()

    def _failure(self, what: str) -> GuestError:
        """The error for `what`; it also ends the guest, whose session is in an unknown state now."""
        if self._expired:
            what = f"the guest passed its deadline of {self.deadline_s:.0f} s"
        self._process.kill()
        self._process.wait()
        log = self._text("qemu.log")
        console = "\n".join(self.console().splitlines()[-25:])
        return GuestError(f"{what}\n--- qemu: {log.strip() or 'no message'}\n--- end of the guest's console:\n{console}")

    def _text(self, name: str) -> str:
        path = self._folder / name
        return path.read_text(errors="replace") if path.is_file() else ""


def _joined(base: Path, files: Mapping[str, bytes]) -> IO[bytes]:
    """The lab's initramfs with one more archive behind it, in a file without a name: nothing stays behind, however a guest ends.

    Linux wants each archive to start at a multiple of four; the lab's has such a length.
    """
    added = Cpio()
    for name, content in files.items():
        added.add_file(name, content, executable=True)
    joined = tempfile.TemporaryFile()
    with open(base, "rb") as first:
        shutil.copyfileobj(first, joined, 1 << 20)
    joined.write(added.to_bytes())
    joined.flush()
    return joined
