"""Disks that hold a filesystem and partitions, made by the crates' examples, as a stock kernel sees them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.guest import Guest

from . import listing
from .host import Host
from .report import Report, Unexpected, expect

LISTING_PROGRAM = Path(listing.__file__)
HOLE_NAME = os.fsdecode(listing.LEFT_OUT)
HOLE_BYTES = 500_000_000_000
HOLE_END = "the end"
# Some directories.
FOLDERS = (".", "folders", "empty", "deep")
# Two that are cut, which differ in what is cut off.
LONG_NAMES = ("model-00001-of-00002.safetensors of a model hub", "model-00001-of-00002.safetensors of a model store")


class MakeFailed(Exception):
    """An example did not make its disk; the message is its own."""


def made(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MakeFailed(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True)
class Drive:
    """A file that is a disk of the guest."""

    path: Path
    lba_bytes: int

    def options(self, number: int) -> list[str]:
        sizes = f"logical_block_size={self.lba_bytes},physical_block_size=4096"
        return [
            *("-drive", f"file={self.path},format=raw,if=none,id=disk{number},readonly=on"),
            *("-device", f"virtio-blk-pci,drive=disk{number},serial=disk{number},{sizes}"),
        ]


def drive_options(drives: Sequence[Drive]) -> list[str]:
    return [option for number, drive in enumerate(drives) for option in drive.options(number)]


def devices(guest: Guest) -> list[str]:
    """Names such as vda, in the order of the drives: the kernel finds them in its own."""
    found = guest.run("modprobe virtio_blk; cd /sys/block && grep -H disk vd*/serial").checked()
    return [name for _, name in sorted((serial, name) for name, serial in re.findall(r"(vd\w+)/serial:(\w+)", found))]


def test_filesystem(report: Report, guest: Guest, device: str, source: Path, seed: int) -> None:
    with report.test("fsck.erofs finds no error"):
        guest.run(f"fsck.erofs /dev/{device}").checked()
    with report.test("mount"):
        guest.run(f"mkdir -p /mnt/a /mnt/b && mount -t erofs -o ro /dev/{device} /mnt/a && mount --bind /mnt/a /mnt/b").checked()
    with report.test(f"every path, attribute and byte of {sum(1 for _ in listing.walk(os.fsencode(source))):,} is the source's"):
        compare_listings(guest, source, "/mnt/a")
    with report.test("links of directories count their subdirectories"):
        found = guest.run(f"cd /mnt/a && stat -c %h {' '.join(FOLDERS)}").checked().split()
        below = [sum(entry.is_dir(follow_symlinks=False) for entry in os.scandir(source / path)) for path in FOLDERS]
        expect("links", found, [str(2 + folders) for folders in below])
    with report.test("names that are not there are not found"):
        names = " ".join(f"/mnt/a/many/{name}" for name in ("0", "00000", "00000.bim", "05000.bio", "99999.bin", "zz"))
        found = guest.run(f"for name in {names} /mnt/a/empty/x; do [ -e $name ] && echo $name; done; true").checked()
        expect("what is found", found, "")
    with report.test(f"a file of {HOLE_BYTES:,} bytes, to its end"):
        path = f"'/mnt/a/{HOLE_NAME}'"
        expect("size", guest.run(f"stat -c %s {path}").checked().strip(), str(HOLE_BYTES))
        expect("its end", guest.run(f"tail -c 8 {path}").checked().strip(), HOLE_END)
        middle = f"dd if={path} bs=4096 skip=61035156 count=1 status=none | tr -d '\\0' | wc -c"
        expect("bytes in its middle that are not zero", guest.run(middle).checked().strip(), "0")
    with report.test("mmap() at random places, the page cache dropped again and again"):
        wanted = listing.faults(os.fsencode(source), str(seed), drops=False)
        expect("digest", guest.run(f"listing faults /mnt/b {seed}", timeout_s=180).checked().strip(), wanted)
    with report.test("unmount, and the kernel has had nothing to say"):
        guest.run("umount /mnt/b && umount /mnt/a").checked()
        expect("complaints", complaints(guest), [])


def test_served(report: Report, host: Host, namespaces: int, source: Path, seed: int) -> None:
    """The first of the namespaces, which `xio pack` made of a folder, through the target and the kernel's own NVMe host."""
    guest = host.guest
    with report.test("served over NVMe/TCP: connect and mount"):
        guest.run("modprobe nvme-tcp").checked()
        host.connect(namespaces)
        guest.run(f"mkdir -p /mnt/s && mount -t erofs -o ro {host.device(1)} /mnt/s").checked()
    with report.test(f"served: every path, attribute and byte of {sum(1 for _ in listing.walk(os.fsencode(source))):,} is the source's"):
        compare_listings(guest, source, "/mnt/s")
    with report.test("served: mmap() at random places, the page cache dropped again and again"):
        wanted = listing.faults(os.fsencode(source), str(seed), drops=False)
        expect("digest", guest.run(f"listing faults /mnt/s {seed}", timeout_s=180).checked().strip(), wanted)
    with report.test("served: unmount, and the kernel has had nothing to say"):
        guest.run("umount /mnt/s").checked()
        expect("complaints", complaints(guest), [])


def compare_listings(guest: Guest, source: Path, mounted: str) -> None:
    wanted = {entry["path"]: entry for entry in listing.listing(os.fsencode(source))}
    lines = guest.run(f"listing all {mounted}", timeout_s=300).checked().splitlines()
    found = {entry["path"]: entry for entry in map(json.loads, lines)}
    for path in sorted(wanted.keys() | found.keys(), key=str):
        if found.get(path) != wanted.get(path):
            shown = bytes.fromhex(str(path))
            raise Unexpected(f"{shown!r} is {found.get(path)}, wanted {wanted.get(path)}")


def complaints(guest: Guest) -> list[str]:
    lines = guest.run("dmesg | grep -iE 'erofs|I/O error|GPT'").output.splitlines()
    return [line for line in lines if re.search(r"error|corrupt|bogus|invalid|fail|warn|unsupported", line, re.IGNORECASE)]


def test_partitions(report: Report, guest: Guest, device: str, lba_bytes: int, wanted: Sequence[tuple[str, int, int]]) -> None:
    """`wanted`: name in the table, first byte, bytes."""
    with report.test(f"partitions on blocks of {lba_bytes}: names, places, sizes"):
        script = f"""cd /sys/block/{device} && cat queue/logical_block_size && for part in {device}?*; do
            echo "$(sed -n s/^PARTNAME=//p $part/uevent)|$(cat $part/start)|$(cat $part/size)"
        done"""
        block, *found = guest.run(script).checked().splitlines()
        expect("logical block", block, str(lba_bytes))
        # The kernel counts in 512 bytes whatever the block.
        expect("partitions", sorted(found), sorted(f"{name}|{at // 512}|{length // 512}" for name, at, length in wanted))
    with report.test(f"a filesystem in a partition on blocks of {lba_bytes}"):
        guest.run(f"mkdir -p /mnt/p && mount -t erofs -o ro /dev/{device}1 /mnt/p").checked()
        found = guest.run("cat /mnt/p/folders/7/n0 && umount /mnt/p").checked()
        expect("a file in it", found, "0")
        expect("complaints", complaints(guest), [])
