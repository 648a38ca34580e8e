"""The host's program: reads what a contender serves as a trainer or an inference server would, and says how long it took. It is run as a process of its own.

    python -m rivals.reader LOAD FORM FOLDER [--samples N] [--local FOLDER]

Says "ready" when its libraries are loaded, waits for a line on its standard input, reads, and prints JSON: seconds, its own processor seconds, the bytes of elements that it had in memory in the type that was wanted,
and their sum, by which a wrong byte shows.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np  # type: ignore[import-not-found]

PIECE_BYTES = 4 << 20
# Of 4,096 ids.
SAMPLE_IDS = 4096


class Tally:
    """What was delivered: bytes, and the sum of their 16-bit words, which is the same in whatever order they come."""

    def __init__(self) -> None:
        self.bytes, self.sum = 0, 0

    def add(self, elements: Any) -> None:
        self.bytes += elements.nbytes
        self.sum += int(elements.ravel().view("<u2").sum(dtype="u8"))


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and ".xio" not in path.parts)


def pieces(path: Path, begin: int = 0) -> Iterator[Any]:
    """A file's bytes from `begin` on, in order, each piece in the same memory."""
    buffer = np.empty(PIECE_BYTES, "u1")
    with path.open("rb", buffering=0) as file:
        file.seek(begin)
        while count := file.readinto(buffer):
            while count < PIECE_BYTES and (more := file.readinto(memoryview(buffer)[count:])):
                count += more
            yield buffer[:count]


def header_bytes(path: Path) -> int:
    """Of a safetensors file, before its elements."""
    with path.open("rb", buffering=0) as file:
        return 8 + int.from_bytes(file.read(8), "little")


def samples_of(folder: Path) -> Iterator[bytes]:
    """The ids of a folder, as samples of the same size; what is left at a file's end is in none."""
    for path in files(folder):
        with path.open("rb") as file:
            while len(sample := file.read(4 * SAMPLE_IDS)) == 4 * SAMPLE_IDS:
                yield sample


def chosen_of(all_of_them: Sequence[Any], samples: int) -> Iterator[Any]:
    """So many of them, from everywhere; 0: all, in order."""
    chosen = random.Random(7)
    return (all_of_them[chosen.randrange(len(all_of_them))] for _ in range(samples)) if samples else iter(all_of_them)


def widened(packed: Any) -> Any:
    """Three bytes an id to u32."""
    wide = np.zeros((len(packed) // 3, 4), "u1")
    wide[:, :3] = packed.reshape(-1, 3)
    return wide.view("<u4").ravel()


# --- what is read: each adds to the tally ----------------------------------------------------------------------------------------------


def tokens_in_order(form: str, folder: Path, tally: Tally, _: argparse.Namespace) -> None:
    for path in files(folder):
        if form == "u24":
            # Pieces of whole ids.
            with path.open("rb", buffering=0) as file:
                while data := file.read(3 << 20):
                    tally.add(widened(np.frombuffer(data, "u1")))
        else:
            for piece in pieces(path):
                tally.add(piece)


def tokens_at_random(form: str, folder: Path, tally: Tally, given: argparse.Namespace) -> None:
    width = 3 if form == "u24" else 4
    opened = [(os.open(path, os.O_RDONLY), path.stat().st_size // width) for path in files(folder)]
    for file, _ in opened:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    chosen = random.Random(7)
    for _ in range(given.samples):
        file, ids = opened[chosen.randrange(len(opened))]
        data = np.frombuffer(os.pread(file, SAMPLE_IDS * width, chosen.randrange(ids - SAMPLE_IDS) * width), "u1")
        tally.add(widened(data) if form == "u24" else data)


def weights(form: str, folder: Path, tally: Tally, _: argparse.Namespace) -> None:
    for path in files(folder):
        if form == "npz":
            with zipfile.ZipFile(path) as archive:
                tally.add(np.load(archive.open("weight.npy"), allow_pickle=False))
            continue
        for piece in pieces(path, header_bytes(path)):
            tally.add(piece)


def embeddings(form: str, folder: Path, tally: Tally, _: argparse.Namespace) -> None:
    """In f16, whatever they are stored in."""
    for path in (path for path in files(folder) if path.suffix == ".npy"):
        array = np.load(path, mmap_mode="r")
        for piece in pieces(path, path.stat().st_size - array.nbytes):
            tally.add(piece.view("<f4").astype("<f2") if form == "f32" else piece)


def streamed(_: str, folder: Path, tally: Tally, given: argparse.Namespace) -> None:
    """MosaicML's shards: each is fetched whole from the mount into a folder of this machine and undone there when a sample of it is wanted, which is what StreamingDataset does; files, compression and samples are its own code."""
    from streaming.base.compression import decompress  # type: ignore[import-not-found]

    index = json.loads((folder / "index.json").read_text())
    shards = [foreign.MDSReader.from_json(given.local, None, shard) for shard in index["shards"]]
    present: set[int] = set()

    def sample(at: int) -> Any:
        shard, item = divmod(at, len(shards[0]))
        if shard not in present:
            zipped = (folder / index["shards"][shard]["zip_data"]["basename"]).read_bytes()
            Path(given.local, index["shards"][shard]["raw_data"]["basename"]).write_bytes(decompress(index["shards"][shard]["compression"], zipped))
            present.add(shard)
        return np.frombuffer(shards[shard][item]["elements"], "u1")

    for at in chosen_of(range(sum(map(len, shards))), given.samples):
        tally.add(sample(at))


LOADS = {"in order": tokens_in_order, "at random": tokens_at_random, "weights": weights, "embeddings": embeddings}


def enter_streaming() -> None:
    """Makes `foreign` known: MosaicML's package without torch. zstd comes first, or it would be taken for one of the things that are not needed."""
    global foreign
    import zstd  # type: ignore[import-not-found]  # noqa: F401
    import foreign  # type: ignore[import-not-found]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("load")
    parser.add_argument("form")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--local", default="")
    given = parser.parse_args()
    load = LOADS[given.load]
    if given.form == "mds":
        load = streamed
        enter_streaming()
    print("ready", flush=True)
    sys.stdin.readline()
    tally, before, began = Tally(), time.process_time(), time.monotonic()
    load(given.form, given.folder, tally, given)
    seconds, cpu = time.monotonic() - began, time.process_time() - before
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "bytes": tally.bytes, "sum": tally.sum}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
