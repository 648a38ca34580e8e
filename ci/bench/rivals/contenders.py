"""Who is compared: how each prepares a folder once, what the target serves then, and what the host runs to read it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np  # type: ignore[import-not-found]

from debian.root import Root

from .machine import Failed, Programs, run
from .reader import files, header_bytes
from .volume import chains

IMAGE = "image"
ZSTD_LEVEL = 3
# A block of the images that compress, and a frame of what is read at random.
BLOCK_KIB = 64
XZ_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Tools:
    """The programs of both sides."""

    xio: Path
    snap_target: Path
    snapctl: Path
    rivals: Root

    def rival(self, program: str, *args: str | Path) -> list[str]:
        return self.rivals.command(f"usr/bin/{program}", *map(str, args))


@dataclass(frozen=True)
class Stored:
    """What a contender prepared."""

    store: str
    """As snap-target is told it."""
    bytes: int
    """What it takes in the store, beside the source."""
    seconds: float
    """What making it took, of the wall's clock."""
    chains: str = ""
    """Of a volume of ours: how its data is stored, as it says itself."""


@dataclass(frozen=True)
class Contender:
    name: str
    what: str
    """A line for the document."""
    prepare: Callable[[Tools, Path, Path], Stored]
    """Of a source folder, in an empty folder."""
    form: str = "plain"
    """What reader.py finds."""
    undo: Callable[[Tools, Programs, ExitStack, Path, Path], Path] | None = None
    """On the host: of the mounted disk and an empty folder, the folder that the reader reads; None: the disk itself."""

    @contextmanager
    def mounted(self, tools: Tools, host: Programs, url: str, work: Path) -> Iterator[Path]:
        """While this lasts, a host has what the target serves at `url`; its programs are `host`'s."""
        with ExitStack() as stack:
            folder = stack.enter_context(host.mounted(work / "disk", tools.xio, "mount", url, work / "disk"))
            yield self.undo(tools, host, stack, folder, work) if self.undo else folder


# --- prepared once ---------------------------------------------------------------------------------------------------------------------


def timed(stored: Path, began: float) -> tuple[int, float]:
    size = stored.stat().st_size if stored.is_file() else sum(path.stat().st_size for path in stored.rglob("*") if path.is_file())
    return size, time.monotonic() - began


def ours(*options: str) -> Callable[[Tools, Path, Path], Stored]:
    def prepare(tools: Tools, source: Path, work: Path) -> Stored:
        began, volume = time.monotonic(), work / "volume.xio"
        run(tools.xio, "pack", source, "-o", volume, *options)
        stored = Stored(str(volume), *timed(volume, began))
        return replace(stored, chains=chains(json.loads(run(tools.xio, "inspect", volume, "--json"))))

    return prepare


def served_plain(tools: Tools, folder: Path, work: Path) -> str:
    """A plain disk with the folder's files, without checksums: the same target, and nothing of ours in it. Not counted as preparation: a file system is what everybody has."""
    volume, disk = work / "plain.xio", work / "disk.img"
    run(tools.xio, "pack", folder, "-o", volume, "--store-as", "none")
    run(tools.xio, "unpack", volume, "-o", disk)
    volume.unlink()
    return f"file:{disk}"


def plain(tools: Tools, source: Path, work: Path) -> Stored:
    return Stored(served_plain(tools, source, work), timed(source, 0)[0], 0.0)


def converted(convert: Callable[[Path, Path], None]) -> Callable[[Tools, Path, Path], Stored]:
    """Each file by a few lines of numpy, in a new file beside."""

    def prepare(tools: Tools, source: Path, work: Path) -> Stored:
        made = work / "converted"
        made.mkdir()
        began = time.monotonic()
        for path in files(source):
            convert(path, made)
        size, seconds = timed(made, began)
        store = served_plain(tools, made, work)
        shutil.rmtree(made)
        return Stored(store, size, seconds)

    return prepare


def as_u24(path: Path, made: Path) -> None:
    """numpy has no type between u16 and u32: the three low bytes of each id."""
    ids = np.fromfile(path, "<u4")
    ids.view("u1").reshape(-1, 4)[:, :3].tofile(made / path.name)


def as_npz(path: Path, made: Path) -> None:
    data = np.fromfile(path, "<u2", offset=header_bytes(path))
    np.savez_compressed(made / f"{path.stem}.npz", weight=data)


def as_f16(path: Path, made: Path) -> None:
    np.save(made / path.name, np.load(path, mmap_mode="r").astype("<f2"))


def imaged(make: Callable[[Tools, Path, Path], object]) -> Callable[[Tools, Path, Path], Stored]:
    """An image of the folder, as the one file of a plain disk."""

    def prepare(tools: Tools, source: Path, work: Path) -> Stored:
        made = work / "made"
        made.mkdir()
        began = time.monotonic()
        make(tools, source, made / IMAGE)
        size, seconds = timed(made / IMAGE, began)
        store = served_plain(tools, made, work)
        shutil.rmtree(made)
        return Stored(store, size, seconds)

    return prepare


def erofs_zstd(tools: Tools, source: Path, image: Path) -> None:
    run(*tools.rival("mkfs.erofs", f"-zzstd,level={ZSTD_LEVEL}", f"-C{BLOCK_KIB << 10}", image, source))


def squashfs_zstd(tools: Tools, source: Path, image: Path) -> None:
    options = ["-comp", "zstd", "-Xcompression-level", str(ZSTD_LEVEL), "-b", f"{BLOCK_KIB}K", "-quiet", "-no-progress", "-noappend"]
    run(*tools.rival("mksquashfs", source, image, *options))


def erofs_xz(tools: Tools, source: Path, image: Path) -> None:
    bare = image.with_name("bare")
    run(*tools.rival("mkfs.erofs", bare, source))
    with image.open("wb") as out:
        subprocess.run(tools.rival("xz", "-T2", f"--block-size={XZ_BLOCK_BYTES}", "-c", bare), stdout=out, check=True)
    bare.unlink()


def mds(tools: Tools, source: Path, work: Path) -> Stored:
    """Shards of samples of 4,096 ids (of other elements: as many bytes), by MosaicML's own writer."""
    made, began = work / "mds", time.monotonic()
    run(sys.executable, "-m", "rivals.sharded", source, made)
    size, seconds = timed(made, began)
    store = served_plain(tools, made, work)
    shutil.rmtree(made)
    return Stored(store, size, seconds)


# --- on the host -----------------------------------------------------------------------------------------------------------------------


def by_erofs(tools: Tools, host: Programs, stack: ExitStack, disk: Path, work: Path) -> Path:
    return stack.enter_context(host.mounted(work / "files", *tools.rival("erofsfuse", "-f", disk / IMAGE, work / "files")))


def by_squashfs(tools: Tools, host: Programs, stack: ExitStack, disk: Path, work: Path) -> Path:
    return stack.enter_context(host.mounted(work / "files", *tools.rival("squashfuse_ll", "-f", disk / IMAGE, work / "files")))


def by_nbdkit(tools: Tools, host: Programs, stack: ExitStack, disk: Path, work: Path) -> Path:
    plugins, socket = tools.rivals.path / "usr/lib/x86_64-linux-gnu/nbdkit", work / "nbd.sock"
    filter_, plugin = plugins / "filters/nbdkit-xz-filter.so", plugins / "plugins/nbdkit-file-plugin.so"
    server = tools.rivals.command("usr/bin/nbdkit", "-f", "-r", "-U", str(socket), f"--filter={filter_}", str(plugin), str(disk / IMAGE))
    stack.enter_context(host.running(*server))
    deadline = time.monotonic() + 10
    while not socket.exists():
        if time.monotonic() > deadline:
            raise Failed("nbdkit does not listen")
        time.sleep(0.01)
    bare = stack.enter_context(host.mounted(work / "bare", *tools.rival("nbdfuse", "-r", work / "bare", f"nbd+unix:///?socket={socket}")))
    return stack.enter_context(host.mounted(work / "files", *tools.rival("erofsfuse", "-f", bare / "nbd", work / "files")))


# --- who -------------------------------------------------------------------------------------------------------------------------------

PLAIN = Contender("plain files", "the source's files on a plain disk of the same target", plain)
EROFS = Contender("erofs zstd", f"an EROFS image (`mkfs.erofs -zzstd,level={ZSTD_LEVEL}`, clusters of {BLOCK_KIB} KiB) on such a disk; erofsfuse on the host", imaged(erofs_zstd), undo=by_erofs)
SQUASHFS = Contender("squashfs zstd", f"a SquashFS image (zstd {ZSTD_LEVEL}, blocks of {BLOCK_KIB} KiB) on such a disk; squashfuse on the host", imaged(squashfs_zstd), undo=by_squashfs)
XZ = Contender("nbdkit xz", f"an EROFS image in xz (blocks of {XZ_BLOCK_BYTES >> 20} MiB) on such a disk; nbdkit's xz filter, nbdfuse and erofsfuse on the host", imaged(erofs_xz), undo=by_nbdkit)
MDS = Contender("MDS zstd:3", "MosaicML's shards, zstd:3, on such a disk; each fetched whole and undone on the host", mds, form="mds")


def ours_named(name: str, what: str, *options: str) -> Contender:
    return Contender(f"xio: {name}", what, ours(*options))


def ours_as(chain: str, what: str, pattern: str, *options: str) -> Contender:
    """By a chain that the user names."""
    return ours_named(chain, what, "--store", f"{pattern}={chain}", *options)
