"""A folder of everything that a disk may hold: 10,000 files in one directory, a deep tree, long names, any bytes."""

from __future__ import annotations

import os
import random
from pathlib import Path

FILES = 10_000
DEPTH = 300
FOLDERS = 50
SIZES = (0, 1, 10, 100, 4095, 4096, 4097, 9000)
# They sort before, between and after '.' and '..', and are what shells and encodings stumble on.
NAMES = (
    *(b"!bang", b"-", b".!", b".hidden", b"..after", b"...", b" ", b"~", b"A", b"a.b", b"a"),
    *(b"\x01control", b"new\nline", b"\xff\xfe", "größe ∆".encode(), b"x" * 255, b"y" * 254),
)
# Around what fits behind an inode, and around a block.
TARGET_BYTES = (1, 10, 59, 60, 64, 2047, 2048, 2049, 4000, 4095)


def make_tree(folder: Path, seed: int, files: int = FILES) -> None:
    dice = random.Random(f"{seed} tree")
    root = os.fsencode(folder)
    os.makedirs(root + b"/many")
    for number in range(files):
        _put(root + b"/many/%05d.bin" % number, dice.randbytes(dice.choice(SIZES)))
    os.mkdir(root + b"/empty")
    for name in NAMES:
        _put(root + b"/" + name, name)
    _put(root + b"/large", dice.randbytes(20_000_001))
    os.makedirs(root + b"/deep" + b"/d" * DEPTH)
    _put(root + b"/deep" + b"/d" * DEPTH + b"/leaf", b"leaf")
    for length in TARGET_BYTES:
        os.symlink(b"t" * length, root + b"/link%d" % length)
    for number in range(FOLDERS):
        folder_of = root + b"/folders/%d" % number
        os.makedirs(folder_of)
        for inside in range(number):
            _put(folder_of + b"/" + b"n" * (1 + inside * 7 % 240) + b"%d" % inside, b"%d" % inside)
    # Modes and times last: to put something into a directory changes its time.
    for at, folders, files in os.walk(root, topdown=False):
        for name in [*files, *folders]:
            path = os.path.join(at, name)
            if not os.path.islink(path):
                os.chmod(path, dice.choice((0o644, 0o600, 0o755, 0o4755, 0o1777)) | (0o700 if os.path.isdir(path) else 0))
            time_ns = dice.randint(-(10**18), 4 * 10**18)
            os.utime(path, ns=(time_ns, time_ns), follow_symlinks=False)


def _put(path: bytes, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
