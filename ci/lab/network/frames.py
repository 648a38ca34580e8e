"""Ethernet frames: which are a test's business, corrupting one, and writing them to a file that Wireshark reads."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from .faults import Corrupt

TCP, UDP = 6, 17
# RoCEv2 is UDP to this port (IANA).
ROCE_PORT = 4791
_ETHERNET_BYTES = 14
_IPV4, _IPV6 = 0x0800, 0x86DD
# Offsets of the checksum in the header (RFC 9293, RFC 768).
_CHECKSUM_OFFSET = {TCP: 16, UDP: 6}
_PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1)


@dataclass(frozen=True)
class Segment:
    """A TCP segment or UDP datagram in a frame; `start`, `payload` and `end` are offsets in the frame."""

    protocol: int
    addresses: bytes
    source_port: int
    destination_port: int
    start: int
    payload: int
    end: int


def segment(frame: bytes) -> Segment | None:
    """None for anything else, such as ARP, a later fragment, or an IPv6 extension header."""
    (ether_type,) = struct.unpack_from("!H", frame, 12) if len(frame) >= _ETHERNET_BYTES + 20 else (0,)
    ip = _ETHERNET_BYTES
    if ether_type == _IPV4:
        (length, fragment) = struct.unpack_from("!H2xH", frame, ip + 2)
        start, end = ip + (frame[ip] & 15) * 4, ip + length
        protocol, addresses = frame[ip + 9], frame[ip + 12 : ip + 20]
        # More to come, or not the first.
        if fragment & 0x3FFF:
            return None
    elif ether_type == _IPV6 and len(frame) >= ip + 40:
        start, end = ip + 40, ip + 40 + struct.unpack_from("!H", frame, ip + 4)[0]
        protocol, addresses = frame[ip + 6], frame[ip + 8 : ip + 40]
    else:
        return None
    if protocol not in _CHECKSUM_OFFSET or end > len(frame) or end - start < (20 if protocol == TCP else 8):
        return None
    payload = start + (frame[start + 12] >> 4) * 4 if protocol == TCP else start + 8
    source_port, destination_port = struct.unpack_from("!HH", frame, start)
    return Segment(protocol, addresses, source_port, destination_port, start, payload, end) if payload <= end else None


def is_tcp(port: int, payload_bytes_min: int = 0) -> Callable[[bytes], bool]:
    """Whether a frame is TCP from or to this port, with so much payload."""
    return lambda frame: _is(frame, TCP, port, payload_bytes_min)


def is_roce(payload_bytes_min: int = 0) -> Callable[[bytes], bool]:
    """Whether a frame is RoCEv2, with so much UDP payload, which is the InfiniBand packet."""
    return lambda frame: _is(frame, UDP, ROCE_PORT, payload_bytes_min)


def _is(frame: bytes, protocol: int, port: int, payload_bytes_min: int) -> bool:
    found = segment(frame)
    return (
        found is not None
        and found.protocol == protocol
        and port in (found.source_port, found.destination_port)
        and found.end - found.payload >= payload_bytes_min
    )


def corrupt_payload(frame: bytes, fault: Corrupt, random: Random) -> bytes | None:
    """One byte of the UDP or TCP payload is another. None where there is no such byte."""
    found = segment(frame)
    if not found or found.end - found.payload <= (fault.offset or 0):
        return None
    place = found.payload + (random.randrange(found.end - found.payload) if fault.offset is None else fault.offset)
    changed = bytearray(frame)
    changed[place] ^= random.randrange(1, 256)
    if fault.repair:
        _set_checksum(changed, found)
    return bytes(changed)


def corrupt_piece(piece: bytes, fault: Corrupt, random: Random) -> bytes | None:
    """The same for a piece of a stream, all of which is payload."""
    if len(piece) <= (fault.offset or 0):
        return None
    changed = bytearray(piece)
    changed[random.randrange(len(piece)) if fault.offset is None else fault.offset] ^= random.randrange(1, 256)
    return bytes(changed)


def checksum(frame: bytes | bytearray, found: Segment) -> int:
    """The Internet checksum (RFC 1071) of a segment, its own field taken as zero, with the pseudo header of its IP version."""
    body = bytearray(frame[found.start : found.end])
    at = _CHECKSUM_OFFSET[found.protocol]
    body[at : at + 2] = bytes(2)
    total = _sum(found.addresses) + found.protocol + len(body) + _sum(bytes(body))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    # Zero is UDP's sign for none, and the two zeros of ones' complement mean the same number.
    return (~total & 0xFFFF) or 0xFFFF


def _set_checksum(frame: bytearray, found: Segment) -> None:
    at = found.start + _CHECKSUM_OFFSET[found.protocol]
    # A datagram without a checksum stays one.
    if found.protocol == TCP or frame[at : at + 2] != bytes(2):
        struct.pack_into("!H", frame, at, checksum(frame, found))


def _sum(part: bytes) -> int:
    """Of its 16-bit words; an odd last byte is a word's upper half."""
    words: tuple[int, ...] = struct.unpack(f"!{len(part) // 2}H", part[: len(part) & ~1])
    return sum(words) + (part[-1] << 8 if len(part) & 1 else 0)


class Capture:
    """A pcap file. Flushed with each frame, so that a test that dies leaves what it saw."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "wb", buffering=0)
        self._file.write(_PCAP_HEADER)

    def write(self, frame: bytes, time_s: float) -> None:
        seconds, microseconds = divmod(int(time_s * 1_000_000), 1_000_000)
        self._file.write(struct.pack("<IIII", seconds, microseconds, len(frame), len(frame)) + frame)

    def close(self) -> None:
        self._file.close()
