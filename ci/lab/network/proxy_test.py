import socket
import struct
import time
import unittest
from random import Random

from lab.network.faults import Corrupt, Cut, Delay, Drop, Rate
from lab.network.proxy import WAITING_BYTES_MAX, Proxy

SECONDS_MAX = 10.0


class ProxyTest(unittest.TestCase):
    def setUp(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(SECONDS_MAX)
        self.addCleanup(self.listener.close)
        self.proxy = Proxy(("127.0.0.1", self.listener.getsockname()[1]), seed=1)
        self.proxy.__enter__()
        self.addCleanup(self.proxy.__exit__, None, None, None)
        self.client, self.server = self.connect()

    def connect(self) -> tuple[socket.socket, socket.socket]:
        client = socket.create_connection(("127.0.0.1", self.proxy.port), SECONDS_MAX)
        server, _ = self.listener.accept()
        server.settimeout(SECONDS_MAX)
        for end in (client, server):
            self.addCleanup(end.close)
        return client, server

    def received(self, end: socket.socket, length: int) -> bytes:
        """So many bytes, or all until the end."""
        received = bytearray()
        while len(received) < length and (part := end.recv(length - len(received))):
            received += part
        return bytes(received)

    def assert_silent(self, end: socket.socket) -> None:
        """Nothing is there, after the proxy's thread has been around once more: a connection of its own has been served meanwhile."""
        client, server = self.connect()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        server.close()
        end.setblocking(False)
        with self.assertRaises(BlockingIOError):
            end.recv(1)
        end.settimeout(SECONDS_MAX)

    def assert_reset(self, end: socket.socket) -> None:
        with self.assertRaises(ConnectionResetError):
            while end.recv(65536):
                pass

    def test_bytes_pass_both_ways_and_each_direction_ends_by_itself(self) -> None:
        data = Random(1).randbytes(100_000)
        self.client.sendall(data)
        self.client.shutdown(socket.SHUT_WR)
        self.assertEqual(self.received(self.server, 200_000), data)
        self.server.sendall(data[::-1])
        self.server.close()
        self.assertEqual(self.received(self.client, 200_000), data[::-1])
        self.assertEqual((self.proxy.count.client_bytes, self.proxy.count.server_bytes), (100_000, 100_000))

    def test_a_cut_in_one_direction_leaves_the_other_and_loses_nothing(self) -> None:
        cut = self.proxy.fault(Cut(), "client", "server")
        self.client.sendall(b"wait")
        self.client.shutdown(socket.SHUT_WR)
        self.server.sendall(b"pass")
        self.assertEqual(self.received(self.client, 4), b"pass")
        self.assert_silent(self.server)
        cut.lift()
        self.assertEqual(self.received(self.server, 5), b"wait")
        self.assertEqual(cut.acted, 1)

    def test_an_end_waits_for_a_cut_even_where_no_bytes_do(self) -> None:
        with self.proxy.fault(Cut(), "client", "server"):
            self.client.shutdown(socket.SHUT_WR)
            self.assert_silent(self.server)
        self.assertEqual(self.received(self.server, 1), b"")

    def test_an_end_that_waited_for_a_cut_finds_nobody(self) -> None:
        with self.proxy.fault(Cut(), "server", "client"):
            self.server.shutdown(socket.SHUT_WR)
            self.client.shutdown(socket.SHUT_WR)
            self.assertEqual(self.received(self.server, 1), b"")
            self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.client.close()
            until = time.monotonic() + SECONDS_MAX
            while self.proxy.count.server_ends == 0:
                self.assertLess(time.monotonic(), until)
                time.sleep(0.001)
        # That the end is passed to nobody would be a failure of the proxy, which it raises when it is left.
        self.assertEqual((self.proxy.count.client_ends, self.proxy.count.server_ends), (1, 1))

    def test_a_connection_made_during_a_cut_is_accepted_and_hears_nothing(self) -> None:
        with self.proxy.fault(Cut()):
            client, server = self.connect()
            client.sendall(b"hello")
            server.sendall(b"hello")
            self.assert_silent(client)
            self.assert_silent(server)
        self.assertEqual((self.received(client, 5), self.received(server, 5)), (b"hello", b"hello"))

    def test_delay(self) -> None:
        with self.proxy.fault(Delay(delay_ms=50), "client", "server", both=True):
            started = time.monotonic()
            self.client.sendall(b"there")
            self.assertEqual(self.received(self.server, 5), b"there")
            self.server.sendall(b"back")
            self.assertEqual(self.received(self.client, 4), b"back")
            self.assertGreaterEqual(time.monotonic() - started, 0.1)

    def test_rate(self) -> None:
        with self.proxy.fault(Rate(bytes_per_s=1_000_000, burst_bytes=16 << 10), "client", "server"):
            started = time.monotonic()
            self.client.sendall(bytes(116 << 10))
            self.assertEqual(self.received(self.server, 116 << 10), bytes(116 << 10))
            # All but the burst.
            self.assertGreaterEqual(time.monotonic() - started, (100 << 10) / 1_000_000)

    def test_corrupt_changes_one_byte(self) -> None:
        data = Random(1).randbytes(100_000)
        with self.proxy.fault(Corrupt(count=1), "client", "server", when=lambda piece: len(piece) > 1000) as corruption:
            self.client.sendall(data)
            received = self.received(self.server, len(data))
        self.assertEqual(len([at for at in range(len(data)) if data[at] != received[at]]), 1)
        self.assertEqual(corruption.acted, 1)

    def test_reset_ends_both_ends_and_new_connections_pass(self) -> None:
        self.assertEqual(self.proxy.reset(), 1)
        self.assert_reset(self.client)
        self.assert_reset(self.server)
        client, server = self.connect()
        client.sendall(b"again")
        self.assertEqual(self.received(server, 5), b"again")
        self.assertEqual((self.proxy.count.connections, self.proxy.count.resets), (2, 1))

    def test_an_ends_own_reset_passes_unless_it_is_cut_off(self) -> None:
        cut = self.proxy.fault(Cut(), "client", "server")
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.client.close()
        self.assert_silent(self.server)
        cut.lift()
        self.assert_reset(self.server)

    def test_where_the_server_refuses_the_client_sees_a_reset(self) -> None:
        self.listener.close()
        client = socket.create_connection(("127.0.0.1", self.proxy.port), SECONDS_MAX)
        self.assert_reset(client)
        client.close()
        self.assertEqual(self.proxy.count.refused, 1)

    def test_a_receiver_that_takes_nothing_holds_up_the_sender(self) -> None:
        self.client.settimeout(0.5)
        pattern = Random(1).randbytes(1 << 16)
        taken = 0
        with self.assertRaises(TimeoutError):
            while taken < 64 << 20:
                taken += self.client.send(pattern[taken % len(pattern) :])
        # The rest is what the two sockets' own buffers hold.
        self.assertLess(self.proxy.count.client_bytes, WAITING_BYTES_MAX + (8 << 20))
        wanted = (pattern * (taken // len(pattern) + 1))[:taken]
        self.assertEqual(self.received(self.server, taken), wanted)

    def test_what_a_stream_cannot_do_is_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "Drop.* is no fault of this network: it has Cut, Corrupt, Delay, Rate"):
            self.proxy.fault(Drop())
        with self.assertRaisesRegex(ValueError, "cut as a whole"):
            self.proxy.fault(Cut(), when=bool)


if __name__ == "__main__":
    unittest.main()
