"""An Ethernet switch for QEMU guests, with faults between its ports.

    with Switch(("a", "b"), seed=1) as switch:
        # start guests with switch.qemu_options("a", mac=...), ...("b", mac=...)
        with switch.fault(Drop(probability=0.001), when=is_roce()) as loss:
            ...
        print(loss.acted)

Each port is a Unix socket that QEMU's `-netdev stream` connects to, and again after it was lost. On it a frame is its length, in four
bytes with the highest first, and its bytes. It learns addresses as switches do. A receiver that takes too little holds up all senders
(as a lossless RDMA network does); only faults lose frames, and ports that nothing is connected to.
"""

from __future__ import annotations

import asyncio
import shutil
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from .faults import Corrupt, Cut, Delay, Drop, Duplicate, Fault, Faults, Rate, Reorder, Rule
from .frames import Capture, corrupt_payload
from .loop import LoopThread
from .wire import Wire

# The largest IP packet with headers before it; what claims to be more is no frame.
FRAME_BYTES_MAX = 65_536 + 64
# What a port's socket may have waiting before senders are held up.
WAITING_BYTES_MAX = 1 << 20
KINDS = (Cut, Drop, Corrupt, Duplicate, Reorder, Delay, Rate)


@dataclass
class Count:
    """What a port has seen. `unheard`: frames for it while nothing was connected to it."""

    received_frames: int = 0
    received_bytes: int = 0
    sent_frames: int = 0
    sent_bytes: int = 0
    unheard_frames: int = 0


class Switch:
    """Runs in a thread of its own, from `with` to its end. The same seed makes the same choices among the same frames."""

    def __init__(self, ports: tuple[str, ...], seed: int = 0, capture: Path | None = None) -> None:
        self.counts = {name: Count() for name in ports}
        self._faults = Faults(ports, KINDS, seed)
        self._wires = {(a, b): _wire(self._faults, a, b) for a in ports for b in ports if a != b}
        self._ports = {name: _Port(self, name) for name in ports}
        self._addresses: dict[bytes, str] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._capture_path = capture
        self._capture: Capture | None = None
        self._closed = False

    def __enter__(self) -> Switch:
        self._folder = Path(tempfile.mkdtemp(prefix="xio-lab-switch-"))
        self._capture = Capture(self._capture_path) if self._capture_path else None
        self._thread = LoopThread()
        try:
            self._thread.run(self._listen())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Raises where the switch itself has failed meanwhile. Again, it does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self._thread.call(self._disconnect)
            self._thread.stop()
        finally:
            if self._capture:
                self._capture.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def path(self, port: str) -> Path:
        """The Unix socket of a port."""
        return self._folder / port

    def qemu_options(self, port: str, mac: str, mtu: int) -> list[str]:
        """QEMU's options for a guest with a network device on this port."""
        netdev = f"stream,id=port,server=off,addr.type=unix,addr.path={self.path(port)},reconnect-ms=500"
        return ["-netdev", netdev, "-device", f"virtio-net-pci,netdev=port,mac={mac},host_mtu={mtu},romfile="]

    def fault(
        self,
        fault: Fault,
        source: str | None = None,
        destination: str | None = None,
        *,
        both: bool = False,
        when: Callable[[bytes], bool] | None = None,
    ) -> Rule:
        """In force from now until it is lifted: see Faults.add. `when` chooses among frames, and must not raise."""
        return self._faults.add(fault, source, destination, both=both, when=when)

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._servers = [await loop.create_unix_server(port.connection, str(self.path(name))) for name, port in self._ports.items()]

    def _disconnect(self) -> None:
        if self._timer:
            self._timer.cancel()
        for server in getattr(self, "_servers", []):
            server.close()
        for port in self._ports.values():
            port.disconnect()

    def received(self, port: str, frame: bytes) -> None:
        """A frame from this port goes to the one where its destination was last seen, else to all others."""
        count = self.counts[port]
        count.received_frames += 1
        count.received_bytes += len(frame)
        destination, source = frame[:6], frame[6:12]
        # The lowest bit of an address is set where it means several.
        if not source[0] & 1:
            self._addresses[source] = port
        known = self._addresses.get(destination)
        for (start, end), wire in self._wires.items():
            if start == port and known in (None, end):
                wire.put(frame, time.monotonic())

    def turn(self) -> None:
        """Sends what is due, and comes again when something is."""
        now_s = time.monotonic()
        for (_, end), wire in self._wires.items():
            for frame in wire.take(now_s):
                self._ports[end].send(frame)
                if self._capture:
                    self._capture.write(frame, time.time())
        for port in self._ports.values():
            port.flush()
        due = [due_s for wire in self._wires.values() if (due_s := wire.due_s()) is not None]
        if self._timer:
            self._timer.cancel()
        loop = self._thread.loop
        self._timer = loop.call_later(max(0.0, min(due) - now_s), self.turn) if due else None

    def hold_senders(self) -> None:
        """Nobody is read from while any port has too much waiting."""
        held = any(port.is_full for port in self._ports.values())
        for port in self._ports.values():
            port.hold(held)


def _wire(faults: Faults, source: str, destination: str) -> Wire:
    return Wire(faults, source, destination, lossy=True, corrupt=corrupt_payload)


class _Port:
    """A port, over all connections that QEMU makes to it."""

    def __init__(self, switch: Switch, name: str) -> None:
        self.switch = switch
        self.name = name
        self.is_full = False
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []

    def connection(self) -> _Connection:
        return _Connection(self)

    def connect(self, transport: asyncio.Transport) -> None:
        # The newer one is the guest's: of a guest that was killed nothing says that it has gone.
        self.disconnect()
        transport.set_write_buffer_limits(high=WAITING_BYTES_MAX)
        self._transport = transport
        self.switch.hold_senders()

    def disconnect(self) -> None:
        if self._transport:
            self._transport.abort()
            self._transport = None

    def lost(self, transport: asyncio.BaseTransport) -> None:
        if self._transport is transport:
            self._transport = None
            self.is_full = False
            self.switch.hold_senders()

    def send(self, frame: bytes) -> None:
        count = self.switch.counts[self.name]
        if self._transport is None:
            count.unheard_frames += 1
            return
        count.sent_frames += 1
        count.sent_bytes += len(frame)
        self._out += (struct.pack("!I", len(frame)), frame)

    def flush(self) -> None:
        if self._transport and self._out:
            self._transport.write(b"".join(self._out))
        self._out.clear()

    def hold(self, held: bool) -> None:
        if self._transport and not self._transport.is_closing():
            (self._transport.pause_reading if held else self._transport.resume_reading)()


class _Connection(asyncio.Protocol):
    """One connection to a port: cuts what comes into frames."""

    def __init__(self, port: _Port) -> None:
        self._port = port
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._port.connect(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._port.lost(self._transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= 4:
            (length,) = struct.unpack_from("!I", self._buffer, at)
            if not 14 <= length <= FRAME_BYTES_MAX:
                self._transport.abort()
                raise ValueError(f"port {self._port.name}: a frame of {length} bytes; 14 to {FRAME_BYTES_MAX} are possible")
            if len(self._buffer) - at - 4 < length:
                break
            self._port.switch.received(self._port.name, bytes(self._buffer[at + 4 : at + 4 + length]))
            at += 4 + length
        del self._buffer[:at]
        self._port.switch.turn()

    def pause_writing(self) -> None:
        self._port.is_full = True
        self._port.switch.hold_senders()

    def resume_writing(self) -> None:
        self._port.is_full = False
        self._port.switch.hold_senders()
