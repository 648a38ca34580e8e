import socket
import struct
import tempfile
import time
import unittest
from pathlib import Path

from lab.network.faults import Corrupt, Cut, Delay, Drop, Duplicate, Fault, Rate, Reorder
from lab.network.frames import is_tcp
from lab.network.frames_test import TCP_V4, UDP_V4
from lab.network.switch import FRAME_BYTES_MAX, Count, Switch

BROADCAST = b"\xff" * 6
SECONDS_MAX = 10.0


def mac(port: str) -> bytes:
    return b"\x52\x54\x00\x00\x00" + port.encode()


def frame(source: str, destination: str, number: int = 0, size: int = 64) -> bytes:
    to = BROADCAST if destination == "all" else mac(destination)
    return (to + mac(source) + b"\x88\xb5" + struct.pack("!I", number)).ljust(size, b"\0")


class Plug:
    """What QEMU does at the other end of a port."""

    def __init__(self, switch: Switch, port: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SECONDS_MAX)
        self.socket.connect(str(switch.path(port)))

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(struct.pack("!I", len(sent)) + sent for sent in frames))

    def receive(self) -> bytes:
        (length,) = struct.unpack("!I", self._exactly(4))
        return self._exactly(length)

    def ended(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, length: int) -> bytes:
        received = b""
        while len(received) < length:
            part = self.socket.recv(length - len(received))
            if not part:
                raise EOFError("the switch has ended the connection")
            received += part
        return received


class SwitchTest(unittest.TestCase):
    """Where a test states that nothing came, a frame that was sent later is the next that comes."""

    def setUp(self) -> None:
        self.start(seed=1)

    def start(self, seed: int, capture: Path | None = None) -> None:
        self.switch = Switch(("a", "b", "c"), seed, capture)
        self.switch.__enter__()
        self.addCleanup(self.switch.close)
        self.plugs = {port: self.plug(self.switch, port) for port in ("a", "b", "c")}

    def plug(self, switch: Switch, port: str) -> Plug:
        """Connected, and its address known to the switch. The frame that tells it is for the port itself, so that it goes nowhere."""
        plug = Plug(switch, port)
        self.addCleanup(plug.socket.close)
        heard = switch.counts[port].received_frames
        plug.send(frame(port, port))
        until = time.monotonic() + SECONDS_MAX
        while switch.counts[port].received_frames == heard:
            self.assertLess(time.monotonic(), until, f"port {port} is not heard")
            time.sleep(0.001)
        return plug

    def passed(self, first: int, end: int) -> list[int]:
        """Which of these numbered frames from a to b arrive, in their order; one more ends them, which no fault may have to do with."""
        self.plugs["a"].send(*(frame("a", "b", number) for number in range(first, end)), frame("a", "b", end))
        arrived = []
        while (number := int.from_bytes(self.plugs["b"].receive()[14:18])) != end:
            arrived.append(number)
        return arrived

    def numbers(self, fault: Fault, end: int = 5) -> list[int]:
        last = frame("a", "b", end)
        with self.switch.fault(fault, "a", "b", when=lambda seen: seen != last):
            return self.passed(0, end)

    def test_a_known_address_is_reached_by_its_port_alone(self) -> None:
        self.plugs["a"].send(frame("a", "b", 1), frame("a", "all", 2))
        self.assertEqual([self.plugs["b"].receive() for _ in range(2)], [frame("a", "b", 1), frame("a", "all", 2)])
        self.assertEqual(self.plugs["c"].receive(), frame("a", "all", 2))

    def test_an_unknown_address_is_looked_for_everywhere(self) -> None:
        self.plugs["a"].send(frame("a", "x", 1))
        self.assertEqual((self.plugs["b"].receive(), self.plugs["c"].receive()), (frame("a", "x", 1),) * 2)
        # It has moved to another port when it is heard there.
        self.plugs["c"].send(frame("a", "b", 2))
        self.assertEqual(self.plugs["b"].receive(), frame("a", "b", 2))
        self.plugs["b"].send(frame("b", "a", 3), frame("b", "all", 4))
        self.assertEqual(self.plugs["c"].receive(), frame("b", "a", 3))
        self.assertEqual(self.plugs["a"].receive(), frame("b", "all", 4))

    def test_frames_of_every_size_cut_at_every_place(self) -> None:
        sent = [frame("a", "b", number, size) for number, size in enumerate((14, 60, 4514, FRAME_BYTES_MAX))]
        # A frame of 14 bytes has no number.
        sent[0] = sent[0][:14]
        stream = b"".join(struct.pack("!I", len(one)) + one for one in sent)
        for step in (1, 3, 5000):
            for at in range(0, min(len(stream), 200), step):
                self.plugs["a"].socket.sendall(stream[at : min(at + step, 200)])
            self.plugs["a"].socket.sendall(stream[at + step if at + step < 200 else 200 :])
            self.assertEqual([self.plugs["b"].receive() for _ in sent], sent)

    def test_each_fault_between_the_ports_that_it_names(self) -> None:
        self.assertEqual(self.numbers(Cut()), [])
        self.assertEqual(self.numbers(Drop(count=2)), [2, 3, 4])
        self.assertEqual(self.numbers(Duplicate(count=1)), [0, 0, 1, 2, 3, 4])
        self.assertEqual(self.numbers(Reorder(count=1, behind=2)), [1, 2, 0, 3, 4])
        self.assertEqual(self.numbers(Delay(delay_ms=1, jitter_ms=5)), [0, 1, 2, 3, 4])
        self.assertEqual(self.numbers(Rate(bytes_per_s=100_000, burst_bytes=64)), [0, 1, 2, 3, 4])
        self.assertEqual(self.passed(0, 5), [0, 1, 2, 3, 4])
        with self.switch.fault(Cut(), "a", "b"):
            self.plugs["a"].send(frame("a", "b", 1), frame("a", "all", 2))
            self.plugs["b"].send(frame("b", "a", 3))
            self.assertEqual(self.plugs["c"].receive(), frame("a", "all", 2))
            self.assertEqual(self.plugs["a"].receive(), frame("b", "a", 3))
        self.assertEqual(self.passed(4, 5), [4])

    def test_a_seed_repeats_what_is_lost(self) -> None:
        lost = []
        for seed in (7, 7, 8):
            self.start(seed)
            lost.append(self.numbers(Drop(probability=0.3), 200))
        self.assertEqual(lost[0], lost[1])
        self.assertNotEqual(lost[0], lost[2])

    def test_a_predicate_chooses_among_frames(self) -> None:
        to_b = {name: mac("b") + mac("a") + sent[12:] for name, sent in {"tcp": TCP_V4, "udp": UDP_V4}.items()}
        with self.switch.fault(Corrupt(offset=0), when=is_tcp(5000)) as corruption:
            self.plugs["a"].send(to_b["udp"], to_b["tcp"])
            self.assertEqual(self.plugs["b"].receive(), to_b["udp"])
            changed = self.plugs["b"].receive()
        self.assertEqual([at for at in range(len(changed)) if changed[at] != to_b["tcp"][at]][-1], len(changed) - 7)
        self.assertEqual((corruption.met, corruption.acted), (1, 1))

    def test_a_port_is_the_newest_connections(self) -> None:
        again = self.plug(self.switch, "b")
        again.send(frame("b", "a", 1))
        self.assertEqual(self.plugs["a"].receive(), frame("b", "a", 1))
        self.assertTrue(self.plugs["b"].ended())
        self.plugs["b"] = again
        self.assertEqual(self.passed(0, 3), [0, 1, 2])

    def test_frames_for_a_port_that_nobody_is_at(self) -> None:
        with Switch(("a", "b")) as switch:
            a = self.plug(switch, "a")
            a.send(frame("a", "b", 1), frame("a", "a", 2))
            b = self.plug(switch, "b")
            a.send(frame("a", "b", 3))
            self.assertEqual(b.receive(), frame("a", "b", 3))
            # With the frames to the ports themselves, which are sent nowhere.
            self.assertEqual(switch.counts["a"], Count(received_frames=4, received_bytes=256))
            self.assertEqual(switch.counts["b"], Count(1, 64, sent_frames=1, sent_bytes=64, unheard_frames=1))

    def test_a_receiver_that_takes_nothing_holds_up_its_senders_and_loses_nothing(self) -> None:
        count = 2000
        sender = self.plugs["a"].socket
        sender.settimeout(0.5)
        sent = b"".join(struct.pack("!I", 4514) + frame("a", "b", number, 4514) for number in range(count))
        taken = 0
        with self.assertRaises(TimeoutError):
            while taken < len(sent):
                taken += sender.send(sent[taken : taken + 65536])
        self.assertLess(taken, 4 << 20)
        for number in range(taken // 4518):
            self.assertEqual(self.plugs["b"].receive(), frame("a", "b", number, 4514))

    def test_what_is_no_frame_is_the_tests_failure(self) -> None:
        switch = Switch(("a", "b"))
        switch.__enter__()
        plug = Plug(switch, "a")
        plug.socket.sendall(struct.pack("!I", FRAME_BYTES_MAX + 1))
        self.assertTrue(plug.ended())
        with self.assertRaisesRegex(RuntimeError, f"port a: a frame of {FRAME_BYTES_MAX + 1} bytes"):
            switch.close()
        plug.socket.close()

    def test_capture_has_what_was_delivered(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "pcap"
            self.start(1, path)
            self.numbers(Drop(count=1), 2)
            self.switch.close()
            content = path.read_bytes()
        self.assertEqual((content.count(frame("a", "b", 0)), content.count(frame("a", "b", 1))), (0, 1))


if __name__ == "__main__":
    unittest.main()
