"""The host's program: reads what a contender serves as a trainer or an inference server would, and says how long it took. It is run as a process of its own.

    python -m rivals.reader LOAD FORM FOLDER --bytes-max N [--samples N] [--local FOLDER]

Says "ready" when its libraries are loaded and its memory is there, waits for a line on its standard input, reads, and prints JSON: seconds, its own processor seconds, and the bytes of elements that it had in memory in the type that was wanted.
After another line it prints these bytes' digest: when all readers are done, so that no digest takes a processor from one that reads.
"""

from __future__ import annotations

import argparse
import io
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

from .delivered import Delivered

PIECE_BYTES = 4 << 20
# Of 4,096 ids.
SAMPLE_IDS = 4096
SAMPLE_BYTES = 4 * SAMPLE_IDS


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and ".xio" not in path.parts)


def bytes_max(folder: Path, samples: int) -> int:
    """What a reader of a source has at most: so many samples, or 0: all."""
    return samples * SAMPLE_BYTES or sum(path.stat().st_size for path in files(folder))


def fill(file: io.FileIO, room: memoryview) -> None:
    """The file's next bytes, as many as there is room for."""
    had = 0
    while had < len(room):
        if not (count := file.readinto(room[had:])):
            raise EOFError(f"{file.name} is too short")
        had += count


def pieces(path: Path, begin: int = 0) -> tuple[io.FileIO, list[int]]:
    """A file that stands at `begin`, and the sizes of the pieces from there to its end."""
    file = io.FileIO(path)
    left = path.stat().st_size - file.seek(begin)
    return file, [min(PIECE_BYTES, left - at) for at in range(0, left, PIECE_BYTES)]


def whole(path: Path, begin: int, delivered: Delivered) -> None:
    """A file's bytes from `begin` on, in order."""
    file, sizes = pieces(path, begin)
    with file:
        for size in sizes:
            fill(file, delivered.room(size))


def header_bytes(path: Path) -> int:
    """Of a safetensors file, before its elements."""
    with path.open("rb", buffering=0) as file:
        return 8 + int.from_bytes(file.read(8), "little")


def samples_of(folder: Path) -> Iterator[bytes]:
    """The ids of a folder, as samples of the same size; what is left at a file's end is in none."""
    for path in files(folder):
        with path.open("rb") as file:
            while len(sample := file.read(SAMPLE_BYTES)) == SAMPLE_BYTES:
                yield sample


def chosen_of(all_of_them: Sequence[Any], samples: int) -> Iterator[Any]:
    """So many of them, from everywhere; 0: all, in order."""
    chosen = random.Random(7)
    return (all_of_them[chosen.randrange(len(all_of_them))] for _ in range(samples)) if samples else iter(all_of_them)


def widened(packed: Any, room: memoryview) -> None:
    """Three bytes an id to u32, in memory of zeros."""
    np.frombuffer(room, "u1").reshape(-1, 4)[:, :3] = packed.reshape(-1, 3)


# --- what is read, and delivered --------------------------------------------------------------------------------------------------------


def tokens_in_order(form: str, folder: Path, delivered: Delivered, _: argparse.Namespace) -> None:
    for path in files(folder):
        if form == "u24":
            # Pieces of whole ids.
            with path.open("rb", buffering=0) as file:
                while data := file.read(3 << 20):
                    widened(np.frombuffer(data, "u1"), delivered.room(len(data) // 3 * 4))
        else:
            whole(path, 0, delivered)


def tokens_at_random(form: str, folder: Path, delivered: Delivered, given: argparse.Namespace) -> None:
    width = 3 if form == "u24" else 4
    opened = [(os.open(path, os.O_RDONLY), path.stat().st_size // width) for path in files(folder)]
    for file, _ in opened:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    chosen = random.Random(7)
    for _ in range(given.samples):
        file, ids = opened[chosen.randrange(len(opened))]
        room, at = delivered.room(SAMPLE_BYTES), chosen.randrange(ids - SAMPLE_IDS) * width
        if form == "u24":
            widened(np.frombuffer(os.pread(file, SAMPLE_IDS * width, at), "u1"), room)
        elif os.preadv(file, [room], at) != SAMPLE_BYTES:
            raise EOFError("a sample is too short")


def weights(form: str, folder: Path, delivered: Delivered, _: argparse.Namespace) -> None:
    for path in files(folder):
        if form == "npz":
            with zipfile.ZipFile(path) as archive:
                delivered.keep(memoryview(np.load(archive.open("weight.npy"), allow_pickle=False)))
        else:
            whole(path, header_bytes(path), delivered)


def embeddings(form: str, folder: Path, delivered: Delivered, _: argparse.Namespace) -> None:
    """In f16, whatever they are stored in."""
    for path in (path for path in files(folder) if path.suffix == ".npy"):
        begin = path.stat().st_size - np.load(path, mmap_mode="r").nbytes
        if form != "f32":
            whole(path, begin, delivered)
            continue
        file, sizes = pieces(path, begin)
        piece = np.empty(PIECE_BYTES, "u1")
        with file:
            for size in sizes:
                fill(file, memoryview(piece)[:size])
                np.frombuffer(delivered.room(size // 2), "<f2")[:] = piece[:size].view("<f4")


def streamed(_: str, folder: Path, delivered: Delivered, given: argparse.Namespace) -> None:
    """MosaicML's shards: each is fetched whole from the mount into a folder of this machine and undone there when a sample of it is wanted, which is what StreamingDataset does; files, compression and samples are its own code."""
    from streaming.base.compression import decompress  # type: ignore[import-not-found]

    index = json.loads((folder / "index.json").read_text())
    shards = [foreign.MDSReader.from_json(given.local, None, shard) for shard in index["shards"]]
    present: set[int] = set()

    def sample(at: int) -> bytes:
        shard, item = divmod(at, len(shards[0]))
        if shard not in present:
            zipped = (folder / index["shards"][shard]["zip_data"]["basename"]).read_bytes()
            Path(given.local, index["shards"][shard]["raw_data"]["basename"]).write_bytes(decompress(index["shards"][shard]["compression"], zipped))
            present.add(shard)
        elements: bytes = shards[shard][item]["elements"]
        return elements

    for at in chosen_of(range(sum(map(len, shards))), given.samples):
        delivered.keep(memoryview(sample(at)))


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
    parser.add_argument("--bytes-max", type=int, required=True)
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--local", default="")
    given = parser.parse_args()
    load = LOADS[given.load]
    if given.form == "mds":
        load = streamed
        enter_streaming()
    delivered = Delivered(given.bytes_max)
    print("ready", flush=True)
    sys.stdin.readline()
    before, began = time.process_time(), time.monotonic()
    load(given.form, given.folder, delivered, given)
    seconds, cpu = time.monotonic() - began, time.process_time() - before
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "bytes": delivered.bytes}), flush=True)
    sys.stdin.readline()
    print(delivered.digest(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
