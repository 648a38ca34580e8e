"""A TCP proxy with faults, between a program on the build machine and a guest, either of which may be the client.

    with Proxy(("127.0.0.1", forwarded_port), seed=1) as proxy:
        # connect to 127.0.0.1:proxy.port; from a guest, to 10.0.2.2
        with proxy.fault(Delay(delay_ms=5), "client", "server", both=True):
            ...
        proxy.reset()

It stands in for the switch where a guest is reached through QEMU's user network, which has no frames. The ends are "client" and
"server". Faults act on pieces of the stream, as the system gave them and PIECE_BYTES_MAX at most: which bytes a piece has depends on
time, so a seed repeats choices, not places. While a direction is cut its bytes wait, and so does the end of a connection. A new connection is
accepted meanwhile, and hears nothing.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

from .faults import Corrupt, Cut, Delay, Fault, Faults, Rate, Rule
from .frames import corrupt_piece
from .loop import LoopThread
from .wire import Wire

CLIENT, SERVER = "client", "server"
KINDS = (Cut, Corrupt, Delay, Rate)
PIECE_BYTES_MAX = 16 << 10
# What one direction of a connection may have under way before its sender is held up.
WAITING_BYTES_MAX = 4 << 20


@dataclass
class Count:
    """`refused`: connections that the server did not take. The last two: how often a program ended what it sends."""

    connections: int = 0
    refused: int = 0
    resets: int = 0
    client_bytes: int = 0
    server_bytes: int = 0
    client_ends: int = 0
    server_ends: int = 0


class Proxy:
    """Listens on 127.0.0.1:`port`, in a thread of its own, from `with` to its end."""

    def __init__(self, server: tuple[str, int], seed: int = 0) -> None:
        self.count = Count()
        self.server = server
        self._faults = Faults((CLIENT, SERVER), KINDS, seed, self._wake)
        self._connections: set[_Connection] = set()

    def __enter__(self) -> Proxy:
        self._thread = LoopThread()
        try:
            self._thread.run(self._listen())
        except BaseException:
            self._thread.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._thread.run(self._end())
        self._thread.stop()

    def fault(
        self,
        fault: Fault,
        source: str | None = None,
        destination: str | None = None,
        *,
        both: bool = False,
        when: Callable[[bytes], bool] | None = None,
    ) -> Rule:
        """In force from now until it is lifted: see Faults.add. `when` chooses among pieces (a cut takes all), and must not raise."""
        if when and isinstance(fault, Cut):
            raise ValueError("a stream is cut as a whole: no piece of it can pass another")
        return self._faults.add(fault, source, destination, both=both, when=when)

    def reset(self) -> int:
        """Ends every connection, toward both ends, by a TCP reset. How many there were."""
        return self._thread.call(self._reset)

    async def _end(self) -> None:
        self._listener.close()
        connecting = [connection.connecting for connection in self._connections if connection.connecting]
        self._reset()
        await asyncio.gather(*connecting)

    def _reset(self) -> int:
        ended = len(self._connections)
        self.count.resets += ended
        for connection in list(self._connections):
            connection.reset()
        return ended

    def _wake(self) -> None:
        self._thread.soon(self._turn_all)

    def _turn_all(self) -> None:
        for connection in list(self._connections):
            connection.turn()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: _End(self._accepted()), "127.0.0.1", 0)
        self.port: int = self._listener.sockets[0].getsockname()[1]

    def _accepted(self) -> _Way:
        connection = _Connection(self)
        self._connections.add(connection)
        self.count.connections += 1
        return connection.ways[CLIENT]

    def wire(self, source: str, destination: str) -> Wire:
        return Wire(self._faults, source, destination, lossy=False, corrupt=corrupt_piece)

    def forget(self, connection: _Connection) -> None:
        self._connections.discard(connection)


class _Way:
    """One direction of a connection: what `source` has sent and the other has not got yet."""

    def __init__(self, connection: _Connection, source: str, destination: str) -> None:
        self.connection = connection
        self.source = source
        self.destination = destination
        self.wire = connection.proxy.wire(source, destination)
        # The source's own, where it has one yet.
        self.transport: asyncio.Transport | None = None
        # The source sends no more; and the destination knows that.
        self.ended = False
        self.end_passed = False
        # The source has reset its connection.
        self.broken = False


class _Connection:
    """A client's connection, and the proxy's own to the server."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.ways = {CLIENT: _Way(self, CLIENT, SERVER), SERVER: _Way(self, SERVER, CLIENT)}
        self._timer: asyncio.TimerHandle | None = None
        # That of the proxy to the server, which goes on after a reset, to be reset too.
        self.connecting: asyncio.Task[None] | None = None
        self.was_reset = False

    def connect(self) -> None:
        self.connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: _End(self.ways[SERVER]), *self.proxy.server)
        except OSError:
            self.proxy.count.refused += 1
            self.reset()

    def received(self, way: _Way, data: bytes) -> None:
        count = self.proxy.count
        if way.source == CLIENT:
            count.client_bytes += len(data)
        else:
            count.server_bytes += len(data)
        for at in range(0, len(data), PIECE_BYTES_MAX):
            way.wire.put(data[at : at + PIECE_BYTES_MAX], time.monotonic())
        self.turn()

    def ended(self, way: _Way) -> None:
        way.ended = True
        self.proxy.count.client_ends += way.source == CLIENT
        self.proxy.count.server_ends += way.source == SERVER
        self.turn()

    def turn(self) -> None:
        """Passes on what is due, and comes again when something is."""
        now_s = time.monotonic()
        due = []
        for way in self.ways.values():
            if way.broken and not way.wire.is_held():
                return self.reset()
            receiver = self.ways[way.destination].transport
            # Not connected yet, or gone.
            if receiver is None or receiver.is_closing():
                continue
            if pieces := way.wire.take(now_s):
                receiver.write(b"".join(pieces))
            if (due_s := way.wire.due_s()) is not None:
                due.append(due_s)
            if way.ended and not way.end_passed and not way.wire.waiting_bytes and not way.wire.is_held():
                way.end_passed = True
                # One whose own end has been read is read from no more, so that nothing has said where it is gone altogether.
                with suppress(OSError):
                    receiver.write_eof()
            self.hold(way)
        if self._timer:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, min(due) - now_s), self.turn) if due else None
        if all(way.end_passed for way in self.ways.values()):
            self._close(lambda transport: transport.close())

    def hold(self, way: _Way) -> None:
        """Reads no more from a source while what it has sent waits."""
        receiver = self.ways[way.destination].transport
        waiting = way.wire.waiting_bytes + (receiver.get_write_buffer_size() if receiver else 0)
        if way.transport and not way.transport.is_closing() and not way.ended:
            (way.transport.pause_reading if waiting > WAITING_BYTES_MAX else way.transport.resume_reading)()

    def reset(self) -> None:
        self.was_reset = True
        self._close(_abort)

    def _close(self, end: Callable[[asyncio.Transport], None]) -> None:
        self.proxy.forget(self)
        if self._timer:
            self._timer.cancel()
        for way in self.ways.values():
            if way.transport:
                end(way.transport)


def _abort(transport: asyncio.Transport) -> None:
    """Closes with a reset instead of the end of the stream (SO_LINGER with zero seconds)."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class _End(asyncio.Protocol):
    """The socket of one end: what it sends goes the way that starts there."""

    def __init__(self, way: _Way) -> None:
        self._way = way

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._way.transport = transport
        # So that `resume_writing` comes when all is written, and a held source is read from again.
        transport.set_write_buffer_limits(high=WAITING_BYTES_MAX // 2)
        if self._way.connection.was_reset:
            return _abort(transport)
        if self._way.source == CLIENT:
            self._way.connection.connect()
        self._way.connection.turn()

    def data_received(self, data: bytes) -> None:
        self._way.connection.received(self._way, data)

    def eof_received(self) -> bool:
        self._way.connection.ended(self._way)
        # The other direction may go on.
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """With an error where the other program has reset it: that passes to the other end once nothing cuts its way."""
        self._way.transport = None
        self._way.broken = error is not None
        self._way.connection.turn()

    def resume_writing(self) -> None:
        self._way.connection.turn()
