"""A dataset on a disk in two precisions at once, as programs in the guest read it: token ids as a Megatron pair and as a numpy array, beside files of other kinds."""

from __future__ import annotations

import array
import hashlib
import struct
from pathlib import Path

from lab.guest import Guest

from .host import Host
from .mounted import compare_listings, complaints
from .report import Report, expect
from .volumes import FIXTURES

# Real ids, all below 50,257.
IDS = FIXTURES / "r50k-u32.bin"
SEQUENCE_IDS = 1000
PRECISIONS = "source,u16"
# What the guest has free, and what of it is taken away while it reads.
TAKEN_SHARE = 0.8


def make_dataset(folder: Path) -> None:
    """As the formats' own documents say: megatron-core's indexed_dataset.py, numpy's format.py."""
    folder.mkdir()
    ids = ids_of(IDS)
    (folder / "train.bin").write_bytes(ids.tobytes())
    (folder / "train.idx").write_bytes(index(4, 4, len(ids)))
    (folder / "ids.npy").write_bytes(npy("<u4", len(ids)) + ids.tobytes())
    (folder / "notes.txt").write_bytes(b"not ids\n")
    (folder / "latest").symlink_to("train.bin")


def ids_of(path: Path) -> array.array[int]:
    ids = array.array("I")
    ids.frombytes(path.read_bytes())
    return ids


def index(code: int, width: int, count: int) -> bytes:
    lengths = [min(SEQUENCE_IDS, count - first) for first in range(0, count, SEQUENCE_IDS)]
    pointers = [width * first for first in range(0, count, SEQUENCE_IDS)]
    documents = range(len(lengths) + 1)
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(documents))
    return head + struct.pack(f"<{len(lengths)}i{len(pointers)}q{len(documents)}q", *lengths, *pointers, *documents)


def npy(descr: str, count: int) -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({count},), }}"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + f"{header:<117}\n".encode()


def narrow() -> dict[str, str]:
    """SHA-256 of what the narrow files must hold: converted here, by Python."""
    ids = array.array("H", ids_of(IDS))
    pair = {"train.bin": ids.tobytes(), "train.idx": index(8, 2, len(ids)), "notes.txt": b"not ids\n"}
    return {name: hashlib.sha256(data).hexdigest() for name, data in pair.items()}


def test_precisions(report: Report, host: Host, nsid: int, source: Path, log: Path, seed: int) -> None:
    guest = host.guest
    with report.test("two precisions: mount"):
        guest.run(f"mkdir -p /mnt/p && mount -t erofs -o ro {host.device(nsid)} /mnt/p").checked()
        expect("names", guest.run("ls -A /mnt/p").checked().split(), [".xio", "source", "u16"])
    with report.test("two precisions: the source's directory is the source, by path, attribute and byte"):
        compare_listings(guest, source, "/mnt/p/source")
    with report.test("two precisions: the narrow files are what Python makes of the ids"):
        for name, wanted in narrow().items():
            found = guest.run(f"sha256sum </mnt/p/u16/{name}").checked().split()[0]
            expect(name, found, wanted)
        expect("a link", guest.run("readlink /mnt/p/u16/latest").checked().strip(), "train.bin")
    with report.test("two precisions: a numpy header that says u16, and data at 4,096 that are"):
        ids = array.array("H", ids_of(IDS))
        expect("length", guest.run("stat -c %s /mnt/p/u16/ids.npy").checked().strip(), str(4096 + 2 * len(ids)))
        found = guest.run("tail -c +4097 /mnt/p/u16/ids.npy | sha256sum").checked().split()[0]
        expect("data", found, hashlib.sha256(ids.tobytes()).hexdigest())
        expect("header", guest.run("head -c 4096 /mnt/p/u16/ids.npy | grep -ac \"'<u2'\"").checked().strip(), "1")
    with report.test("two precisions: the manifest on the disk has the digest of each narrow file"):
        told = guest.run(r"""python3 -c 'import json; m = json.load(open("/mnt/p/.xio/manifest.json"));
print("\n".join(f["path"] + " " + f["sha256"] for v in m["views"] if v["name"] == "u16" for f in v["changed_files"]))'""")
        wanted = narrow()
        found = dict(line.split() for line in told.checked().splitlines())
        expect("files", sorted(found), ["ids.npy", "train.bin", "train.idx"])
        expect("digests", {name: found[name] for name in ("train.bin", "train.idx")}, {name: wanted[name] for name in ("train.bin", "train.idx")})
    with report.test("two precisions: the target's log names the manifest that the host was given"):
        manifest = guest.run("sha256sum </mnt/p/.xio/manifest.json").checked().split()[0]
        lines = [line for line in log.read_text(errors="replace").splitlines() if "a host is given a view" in line]
        given = [line for line in lines if f"manifest_sha256=\"{manifest}\"" in line or f"manifest_sha256={manifest}" in line]
        expect("lines about the disk, once for the host", len(given), 1)
    with report.test("two precisions: both read at once, with most of the memory taken away and the page cache dropped"):
        under_pressure(guest, seed)
    with report.test("two precisions: unmount, and the kernel has had nothing to say"):
        guest.run("umount /mnt/p").checked()
        expect("complaints", complaints(guest), [])


def under_pressure(guest: Guest, seed: int) -> None:
    take = f"""mkdir -p /mnt/taken && mount -t tmpfs -o size=100% none /mnt/taken
        kib=$(awk '/MemAvailable/ {{ print int($2 * {TAKEN_SHARE}) }}' /proc/meminfo)
        dd if=/dev/zero of=/mnt/taken/all bs=1M count=$((kib / 1024)) status=none"""
    guest.run(take).checked()
    read = """for folder in source u16; do
            ( for round in 1 2 3; do echo 3 >/proc/sys/vm/drop_caches; cat /mnt/p/$folder/train.bin /mnt/p/$folder/train.idx | sha256sum; done | sort -u >/tmp/$folder.sum ) &
        done; wait; cat /tmp/source.sum /tmp/u16.sum"""
    found = [line.split()[0] for line in guest.run(read, timeout_s=180).checked().splitlines()]
    ids = ids_of(IDS)
    pairs = (ids.tobytes() + index(4, 4, len(ids)), array.array("H", ids).tobytes() + index(8, 2, len(ids)))
    expect("digests", found, [hashlib.sha256(data).hexdigest() for data in pairs])
    guest.run(f"listing faults /mnt/p {seed}", timeout_s=180).checked()
    guest.run("umount /mnt/taken").checked()

