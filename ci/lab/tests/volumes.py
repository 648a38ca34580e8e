"""What the target serves: real token ids packed in every kind of stored chain, and two raw stores."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "data"
LBA_BYTES = 4096
RAW_BYTES = 16 << 20

# Stored chain, and the data that it can hold: r50k ids need 16 bits, o200k ids need 18.
CHAINS = (
    ("none", "r50k-u32.bin"),
    ("u16", "r50k-u32.bin"),
    ("u16+lz4", "r50k-u32.bin"),
    ("u16+lz4hc", "r50k-u32.bin"),
    ("u16+zstd:3", "r50k-u32.bin"),
    ("bitpack:17", "r50k-u32.bin"),
    ("bitpack:18", "o200k-u32.bin"),
    ("shuffle+zstd:3", "o200k-u32.bin"),
)


@dataclass(frozen=True)
class Namespace:
    """One namespace as the host must see it. `content` is the source's bytes; None is a raw store, which may be written."""

    nsid: int
    title: str
    # How snap-target is told of it.
    argument: str
    content: bytes | None

    @property
    def writable(self) -> bool:
        return self.content is None

    @property
    def size_bytes(self) -> int:
        """Whole blocks: what the last block has beyond the source is zero."""
        length = RAW_BYTES if self.content is None else len(self.content)
        return -(-length // LBA_BYTES) * LBA_BYTES


class PackFailed(Exception):
    """`xio pack` did not do what the lab needs; the message is its own."""


def pack_volumes(xio: Sequence[str], folder: Path) -> list[Namespace]:
    """The volumes of CHAINS, packed into `folder`, then `mem:` and `file:`."""
    namespaces = []
    for namespace, (chain, source) in zip(unpacked(), CHAINS, strict=False):
        volume = folder / f"{namespace.nsid}.xio"
        command = [*xio, "pack", str(FIXTURES / source), "--dtype", "u32", "--store-as", chain, "-o", str(volume)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PackFailed(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr.strip()}")
        namespaces.append(replace(namespace, argument=str(volume)))
    raw_disk(folder).write_bytes(bytes(RAW_BYTES))
    memory, file = unpacked()[len(CHAINS) :]
    return [
        *namespaces,
        replace(memory, argument=f"mem:{RAW_BYTES >> 20}MiB"),
        replace(file, argument=f"file:{raw_disk(folder)}"),
    ]


def unpacked() -> list[Namespace]:
    """What the host must see, whatever the target reads it from."""
    contents = [(f"{chain} of {source}", (FIXTURES / source).read_bytes()) for chain, source in CHAINS]
    everything = [*contents, ("raw memory", None), ("raw file", None)]
    return [Namespace(nsid, title, "", content) for nsid, (title, content) in enumerate(everything, start=1)]


def raw_disk(folder: Path) -> Path:
    """The file behind the raw file namespace."""
    return folder / "disk.raw"
