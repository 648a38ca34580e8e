#!/usr/bin/python3 -IS
"""Runs in the guest: reads and writes block devices and says what it saw, as one line of JSON.

    blocks hash         whole devices: the digest of the first `length` bytes
    blocks check        each read against its digest
    blocks loop FOLDER  the reads again and again until FOLDER/stop is there
    blocks write        writes, one flush a device, then reads all of it back

A list of jobs comes as JSON on the standard input: {"device", "length"} for hash, {"device", "offset", "length", "direct",
"sha256"} for check and loop, {"device", "offset", "length", "seed"} for write.
"""

import hashlib
import json
import mmap
import os
import random
import sys
import threading
from typing import Any

Job = dict[str, Any]

CHUNK_BYTES = 1 << 20
MISMATCHES_SHOWN_MAX = 5


def read(descriptor: int, offset: int, length: int) -> mmap.mmap:
    """Exactly `length` bytes into page-aligned memory, as O_DIRECT wants it."""
    buffer = mmap.mmap(-1, length)
    done = 0
    while done < length:
        got = os.preadv(descriptor, [memoryview(buffer)[done:]], offset + done)
        if got == 0:
            raise OSError(f"the device ends at byte {offset + done}")
        done += got
    return buffer


def whole_device(job: Job) -> Job:
    """O_DIRECT over the whole device. What stands behind the presented length must be zero up to the device's end."""
    descriptor = os.open(job["device"], os.O_RDONLY | os.O_DIRECT)
    size = os.lseek(descriptor, 0, os.SEEK_END)
    digest, offset, rest_is_zero = hashlib.sha256(), 0, True
    while offset < size:
        chunk = read(descriptor, offset, min(CHUNK_BYTES, size - offset))
        presented = max(0, min(len(chunk), job["length"] - offset))
        digest.update(memoryview(chunk)[:presented])
        rest_is_zero = rest_is_zero and not any(chunk[presented:])
        offset += len(chunk)
    os.close(descriptor)
    return {"device": job["device"], "size": size, "sha256": digest.hexdigest(), "rest_is_zero": rest_is_zero}


class Devices:
    """Open devices by name and kind. Buffered ones forget what they read, so that each read reaches the target."""

    def __init__(self) -> None:
        self.open: dict[tuple[str, bool], int] = {}

    def read(self, job: Job) -> mmap.mmap:
        key = (job["device"], job["direct"])
        if key not in self.open:
            self.open[key] = os.open(job["device"], os.O_RDONLY | (os.O_DIRECT if job["direct"] else 0))
            if not job["direct"]:
                os.posix_fadvise(self.open[key], 0, 0, os.POSIX_FADV_RANDOM)
        if not job["direct"]:
            os.posix_fadvise(self.open[key], 0, 0, os.POSIX_FADV_DONTNEED)
        return read(self.open[key], job["offset"], job["length"])


class Tally:
    def __init__(self) -> None:
        self.reads, self.errors, self.mismatches = 0, 0, 0
        self.examples: list[Job] = []

    def run(self, devices: Devices, job: Job) -> None:
        try:
            right = hashlib.sha256(devices.read(job)).hexdigest() == job["sha256"]
            self.mismatches += not right
        except OSError as error:
            right, job = False, {**job, "error": str(error)}
            self.errors += 1
        if not right and len(self.examples) < MISMATCHES_SHOWN_MAX:
            self.examples.append(job)
        self.reads += 1


def check(jobs: list[Job]) -> Job:
    tally, devices = Tally(), Devices()
    for job in jobs:
        tally.run(devices, job)
    return vars(tally)


def loop(jobs: list[Job], folder: str) -> Job:
    """Two readers, so that several queues are busy. `reads` is rewritten after each read, for the test to watch."""
    tallies = [Tally(), Tally()]

    def reader(tally: Tally, seed: int) -> None:
        order, devices = random.Random(seed), Devices()
        while not os.path.exists(f"{folder}/stop"):
            tally.run(devices, order.choice(jobs))
            with open(f"{folder}/reads.{seed}.new", "w") as progress:
                progress.write(str(tally.reads))
            os.rename(f"{folder}/reads.{seed}.new", f"{folder}/reads.{seed}")

    threads = [threading.Thread(target=reader, args=(tally, seed)) for seed, tally in enumerate(tallies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = {name: sum(vars(tally)[name] for tally in tallies) for name in ("reads", "errors", "mismatches")}
    return {**total, "examples": [example for tally in tallies for example in tally.examples]}


def write(jobs: list[Job]) -> list[Job]:
    """Later writes may cover earlier ones: the comparison at the end is with a model of each whole device."""
    opened: dict[str, int] = {}
    models: dict[str, bytearray] = {}
    for job in jobs:
        device = job["device"]
        if device not in opened:
            opened[device] = os.open(device, os.O_RDWR | os.O_DIRECT)
            models[device] = bytearray(os.lseek(opened[device], 0, os.SEEK_END))
            models[device][:] = read(opened[device], 0, len(models[device]))
        content = random.Random(job["seed"]).randbytes(job["length"])
        buffer = mmap.mmap(-1, len(content))
        buffer[:] = content
        if os.pwritev(opened[device], [buffer], job["offset"]) != len(content):
            raise OSError(f"a short write at byte {job['offset']} of {device}")
        models[device][job["offset"] : job["offset"] + len(content)] = content
    answer = []
    for device, descriptor in opened.items():
        os.fsync(descriptor)
        seen = whole_device({"device": device, "length": len(models[device])})
        answer.append({**seen, "wanted": hashlib.sha256(models[device]).hexdigest()})
        os.close(descriptor)
    return answer


def main() -> None:
    command, arguments, jobs = sys.argv[1], sys.argv[2:], json.load(sys.stdin)
    answer: object
    match command:
        case "hash":
            answer = [whole_device(job) for job in jobs]
        case "check":
            answer = check(jobs)
        case "loop":
            answer = loop(jobs, *arguments)
        case "write":
            answer = write(jobs)
        case _:
            sys.exit(f"blocks: no command {command}")
    print(json.dumps(answer))


main()
