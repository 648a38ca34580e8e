"""Which reads and writes are made: random, but fixed by a seed, with what they must give."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence

from .volumes import LBA_BYTES, Namespace

READ_BYTES_MAX = 128 << 10
# The last one is beyond every MDTS that a target is likely to have, so the host splits it.
WRITE_BLOCKS = (1, 2, 3, 32, 33, 256, 512)


def random_reads(namespace: Namespace, device: str, count: int, seed: int) -> Iterator[dict[str, object]]:
    """By turns O_DIRECT (any block, any number of blocks) and buffered (any byte, any length); the ends come first."""
    assert namespace.content is not None
    whole = namespace.content.ljust(namespace.size_bytes, b"\0")
    dice = random.Random(f"{seed} {namespace.nsid}")
    for number in range(count):
        direct = number % 2 == 0
        unit = LBA_BYTES if direct else 1
        units = len(whole) // unit
        # Short reads are as likely as long ones: the exponent is what is drawn.
        length = min(units, max(1, round((READ_BYTES_MAX / unit) ** dice.random())))
        start = {0: 0, 1: 0, 2: units - length, 3: units - length}.get(number, dice.randint(0, units - length))
        part = whole[start * unit : (start + length) * unit]
        yield {
            "device": device,
            "offset": start * unit,
            "length": len(part),
            "direct": direct,
            "sha256": hashlib.sha256(part).hexdigest(),
        }


def random_writes(namespace: Namespace, device: str, count: int, seed: int) -> Iterator[dict[str, object]]:
    """Writes of each size in WRITE_BLOCKS by turns: inside the command's capsule, after an R2T, and split by the host."""
    dice = random.Random(f"{seed} {namespace.nsid} writes")
    blocks = namespace.size_bytes // LBA_BYTES
    for number in range(count):
        length = WRITE_BLOCKS[number % len(WRITE_BLOCKS)]
        start = dice.randint(0, blocks - length)
        yield {
            "device": device,
            "offset": start * LBA_BYTES,
            "length": length * LBA_BYTES,
            "seed": dice.getrandbits(32),
        }


def apply_writes(content: bytes, writes: Sequence[dict[str, object]]) -> bytes:
    """What a disk with `content` holds after `writes`; the guest draws the same bytes from the same seeds."""
    disk = bytearray(content)
    for write in writes:
        offset, length = int(str(write["offset"])), int(str(write["length"]))
        disk[offset : offset + length] = random.Random(int(str(write["seed"]))).randbytes(length)
    return bytes(disk)
