#!/usr/bin/python3 -IS
"""Runs in the guest and on the build machine: says what is below a folder, so that the two can be compared.

    listing all FOLDER          one line of JSON for each path: type, mode, owner, size, time, links, target, SHA-256
    listing faults FOLDER SEED  the digest of bytes at random places of random files, read through mmap(), the page cache dropped
                                now and then

What is called LEFT_OUT is passed by.
"""

import hashlib
import json
import mmap
import os
import random
import stat
import sys
from collections.abc import Iterator

LEFT_OUT = b"left out"
FAULTS = 500
FAULTS_BETWEEN_DROPS = 50


def listing(folder: bytes) -> Iterator[dict[str, object]]:
    """Sorted by path; names as hexadecimal digits, because they are any bytes."""
    for path, names in walk(folder):
        about = os.lstat(path)
        entry: dict[str, object] = {
            "path": os.path.relpath(path, folder).hex(),
            "mode": f"{about.st_mode:o}",
            "owner": [about.st_uid, about.st_gid],
            "mtime_ns": about.st_mtime_ns,
        }
        if names is None:
            entry |= {"links": about.st_nlink, "bytes": about.st_size}
        else:
            # How long a directory is, and whether it counts the '..' of others, is its filesystem's business.
            entry |= {"names": names}
        if stat.S_ISLNK(about.st_mode):
            entry |= {"target": os.readlink(path).hex()}
        if stat.S_ISREG(about.st_mode):
            with open(path, "rb") as file:
                entry |= {"sha256": hashlib.file_digest(file, "sha256").hexdigest()}
        yield entry


def walk(folder: bytes) -> Iterator[tuple[bytes, list[str] | None]]:
    """Every path with its names where it is a directory; without recursion, because some are deep."""
    left = [folder]
    while left:
        path = left.pop()
        if stat.S_ISDIR(os.lstat(path).st_mode):
            names = sorted(name for name in os.listdir(path) if name != LEFT_OUT)
            left.extend(os.path.join(path, name) for name in names)
            yield path, [name.hex() for name in names]
        else:
            yield path, None


def faults(folder: bytes, seed: str, drops: bool) -> str:
    """The digest of what was read."""
    dice = random.Random(seed)
    files = sorted(path for path, _ in walk(folder) if not os.path.islink(path) and os.path.isfile(path) and os.path.getsize(path))
    digest = hashlib.sha256()
    for number in range(FAULTS):
        with open(dice.choice(files), "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            at = dice.randrange(len(mapped))
            digest.update(mapped[at : at + 16])
        if drops and number % FAULTS_BETWEEN_DROPS == 0:
            with open("/proc/sys/vm/drop_caches", "w") as drop:
                drop.write("3")
    return digest.hexdigest()


def main() -> None:
    mode, folder, *rest = sys.argv[1:]
    if mode == "faults":
        print(faults(os.fsencode(folder), rest[0], drops=True))
    else:
        for entry in listing(os.fsencode(folder)):
            print(json.dumps(entry))


if __name__ == "__main__":
    main()
