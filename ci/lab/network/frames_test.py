import struct
import tempfile
import unittest
from pathlib import Path
from random import Random

from lab.network.faults import Corrupt
from lab.network.frames import TCP, UDP, Capture, Segment, checksum, corrupt_payload, is_roce, is_tcp, segment

# As two Linux guests have sent them over the switch, with the kernel's own checksums.
TCP_V4 = bytes.fromhex(
    "52540000000152540000000208004500003b5c28400040065a91c0000202c0000201db221388ca6adc978ec564cb801801e8dbc300000101080aa7a395454734"
    "4db7736576656e2062"
)
UDP_V4 = bytes.fromhex("52540000000152540000000208004500001fc6f040004011efd9c0000202c000020190541388000b04936f6464")
TCP_V6 = bytes.fromhex(
    "52540000000152540000000286dd600be04400270640fd000000000000000000000000000002fd0000000000000000000000000000019c6213884fa57c6f505a"
    "f498801801e6129600000101080ab0ebd3a08517e3ab736576656e2062"
)
UDP_V6 = bytes.fromhex(
    "52540000000152540000000286dd600b95aa000b1140fd000000000000000000000000000002fd000000000000000000000000000001bb8e1388000b63586f6464"
)
ROCE_V4 = bytes.fromhex(
    "5254000000025254000000010800450000307798400040113f21c0000201c0000202ca9a12b7001c00001100ffff0000001100baf2e81f000001e52b59bd"
)
ARP = bytes.fromhex("ffffffffffff5254000000020806" + "0001080006040001525400000002c0000202000000000000c0000201")


def with_checksum_of(frame: bytes, found: Segment) -> int:
    at = found.start + {TCP: 16, UDP: 6}[found.protocol]
    return int.from_bytes(frame[at : at + 2])


class FramesTest(unittest.TestCase):
    def test_parts_of_a_frame(self) -> None:
        for frame, protocol, port, payload in (
            (TCP_V4, TCP, 56098, b"seven b"),
            (UDP_V4, UDP, 36948, b"odd"),
            (TCP_V6, TCP, 40034, b"seven b"),
            (UDP_V6, UDP, 48014, b"odd"),
        ):
            # Ethernet fills up short frames.
            for padded in (frame, frame + bytes(6)):
                found = segment(padded)
                assert found is not None
                self.assertEqual((found.protocol, found.source_port, found.destination_port), (protocol, port, 5000))
                self.assertEqual(padded[found.payload : found.end], payload)
        for none in (b"", ARP, TCP_V4[:50], UDP_V6[:-1], TCP_V4[:20] + b"\x20\x01" + TCP_V4[22:]):
            self.assertIsNone(segment(none), none.hex())

    def test_no_bytes_make_it_fail(self) -> None:
        random = Random(1)
        for _ in range(20_000):
            frame = bytearray(random.choice((TCP_V4, UDP_V4, TCP_V6, UDP_V6)))
            for _ in range(random.randrange(4)):
                frame[random.randrange(12, len(frame))] = random.randrange(256)
            found = segment(bytes(frame[: random.randrange(len(frame) + 1)]))
            self.assertTrue(found is None or 0 < found.start < found.payload <= found.end <= len(frame))

    def test_the_checksum_is_the_kernels(self) -> None:
        for frame in (TCP_V4, UDP_V4, TCP_V6, UDP_V6):
            found = segment(frame)
            assert found is not None
            self.assertEqual(checksum(frame, found), with_checksum_of(frame, found))

    def test_predicates(self) -> None:
        self.assertTrue(is_tcp(5000)(TCP_V4) and is_tcp(56098)(TCP_V4) and is_tcp(5000, 7)(TCP_V6))
        self.assertFalse(is_tcp(5000)(UDP_V4) or is_tcp(5001)(TCP_V4) or is_tcp(5000, 8)(TCP_V6) or is_tcp(5000)(ARP))
        self.assertTrue(is_roce()(ROCE_V4) and is_roce(20)(ROCE_V4))
        self.assertFalse(is_roce()(UDP_V4) or is_roce(21)(ROCE_V4) or is_tcp(4791)(ROCE_V4))

    def test_corruption_that_reaches_the_receiver(self) -> None:
        for frame in (TCP_V4, UDP_V4, TCP_V6, UDP_V6):
            changed = corrupt_payload(frame, Corrupt(offset=2), Random(1)) or b""
            found = segment(changed)
            assert found is not None
            self.assertEqual([at for at in range(found.payload, found.end) if changed[at] != frame[at]], [found.payload + 2])
            self.assertEqual(checksum(changed, found), with_checksum_of(changed, found))
            self.assertNotEqual(with_checksum_of(changed, found), with_checksum_of(frame, found))

    def test_corruption_that_the_checksum_shows(self) -> None:
        changed = corrupt_payload(TCP_V4, Corrupt(offset=2, repair=False), Random(1)) or b""
        self.assertEqual([at for at in range(len(TCP_V4)) if changed[at] != TCP_V4[at]], [len(TCP_V4) - 5])

    def test_a_datagram_without_a_checksum_gets_none(self) -> None:
        changed = corrupt_payload(ROCE_V4, Corrupt(offset=0), Random(1)) or b""
        self.assertEqual(len([at for at in range(len(ROCE_V4)) if changed[at] != ROCE_V4[at]]), 1)

    def test_corruption_where_there_is_no_such_byte(self) -> None:
        self.assertIsNone(corrupt_payload(ARP, Corrupt(), Random(1)))
        self.assertIsNone(corrupt_payload(UDP_V4, Corrupt(offset=3), Random(1)))
        self.assertIsNotNone(corrupt_payload(UDP_V4, Corrupt(offset=2), Random(1)))

    def test_capture_is_a_pcap_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "pcap"
            capture = Capture(path)
            capture.write(ARP, 1_700_000_000.25)
            capture.close()
            header, rest = path.read_bytes()[:24], path.read_bytes()[24:]
        # pcap's specification: magic number, version 2.4, link type 1 (Ethernet); then seconds, microseconds, length twice.
        self.assertEqual(header, bytes.fromhex("d4c3b2a1 0200 0400 00000000 00000000 00000400 01000000"))
        self.assertEqual(struct.unpack("<IIII", rest[:16]), (1_700_000_000, 250_000, len(ARP), len(ARP)))
        self.assertEqual(rest[16:], ARP)


if __name__ == "__main__":
    unittest.main()
