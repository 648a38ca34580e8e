"""A mixed disk at a Linux host: a dataset that nobody may write, and room behind it for a file system."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .operated import NQN
from .operations import OperatedHost
from .report import Report, Unexpected, expect, expect_that

NSID = 6
SOURCE = Path(__file__).resolve().parents[3] / "fixtures/data/r50k-u32.bin"
# That of a loop device, which can be set up for no larger ones here.
BLOCK = 512
# The source's last block is not full.
DATASET_BLOCKS = -(-SOURCE.stat().st_size // BLOCK)
ROOM_BYTES = 128 << 20
# Writes that the test makes and that are refused: first block, blocks.
REFUSED = ((0, 1), (DATASET_BLOCKS - 1, 2))


def test_mixed(report: Report, host: OperatedHost, xio: Sequence[str]) -> None:
    before = len(host.complaints())
    with report.test("a dataset and room behind it are one disk, which is not read-only, and the dataset reads right"):
        _attach(host, xio)
        device = host.wait_device(NSID)
        expect("size", host.size_bytes(device), DATASET_BLOCKS * BLOCK + ROOM_BYTES)
        expect("read-only", host.do(f"cat /sys/block/{device[5:]}/ro").strip(), "0")
        expect("sha256 of the dataset", _dataset_sha256(host, device), _source_sha256())
        log = (host.target.folder / "target.log").read_text(errors="replace").splitlines()
        given = [line for line in log if "a host is given a view" in line and f"nsid={NSID} " in line]
        expect_that(f"the log has which host was given the view, and where: {given}", len(given) == 1 and host.hostnqn in given[0] and "first_lba=0 " in given[0])
    with report.test("ext4 in the room: made, filled, read back, checked"):
        # What is written through the loop device begins behind the dataset.
        host.do(f"modprobe loop && losetup -o {DATASET_BLOCKS * BLOCK} /dev/loop0 {device}")
        host.do("mkfs.ext4 -q -F /dev/loop0 >/tmp/mkfs.log 2>&1 || { cat /tmp/mkfs.log; false; }", 180)
        host.do("mkdir -p /mnt/room && mount -t ext4 /dev/loop0 /mnt/room && cp -a /usr/lib/python3* /mnt/room/", 300)
        host.do(f"{_sums('/mnt/room')} >/tmp/room.before && sync && umount /mnt/room", 300)
        expect_that("files were compared", int(host.do("wc -l </tmp/room.before")) > 100)
        host.do("e2fsck -f -n /dev/loop0 >/tmp/check.log 2>&1 || { cat /tmp/check.log; false; }", 180)
    with report.test("a write to the dataset fails, and so does one that reaches from it into the room; the kernel says why"):
        edge = f"dd if={device} bs={BLOCK} skip={DATASET_BLOCKS} count=1 iflag=direct status=none | sha256sum"
        first_of_room = host.do(edge)
        for lba, blocks in REFUSED:
            fill = f"dd if=/dev/urandom of={device} bs={BLOCK * blocks} count=1 oflag=direct,seek_bytes seek={lba * BLOCK} conv=notrunc"
            written = host.sh(fill)
            expect_that(f"dd fails: {written.output!r}", written.status != 0 and "No data available" in written.output)
            said = rf"LBA {lba}, {blocks} blocks, .*\(sct 0x1 / sc 0x82\) DNR"
            expect_that(f"the kernel's log has {said}", re.search(said, host.do("dmesg | tail -5")) is not None)
        expect("the first block of the room", host.do(edge), first_of_room)
        expect("sha256 of the dataset", _dataset_sha256(host, device), _source_sha256())
    with report.test("after kill -9 the same disk comes back, with the dataset and what the file system had synced"):
        host.do("mount -t ext4 /dev/loop0 /mnt/room && echo kept >/mnt/room/file && sync")
        uuid = host.do(f"cat /sys/block/{device[5:]}/uuid")
        host.target.kill()
        host.wait_for("the host has lost the controller", lambda: host.state() != "live")
        host.target.start()
        host.wait_for("the controller is live again", lambda: host.state() == "live")
        host.do("umount /mnt/room && echo 3 >/proc/sys/vm/drop_caches && mount -t ext4 -o ro /dev/loop0 /mnt/room")
        expect("the device", host.wait_device(NSID), device)
        expect("uuid", host.do(f"cat /sys/block/{device[5:]}/uuid"), uuid)
        expect("sha256 of the dataset", _dataset_sha256(host, device), _source_sha256())
        expect("what was synced", host.do("cat /mnt/room/file").strip(), "kept")
        host.do(f"{_sums('/mnt/room')} | grep -v ' ./file$' | diff - /tmp/room.before >/tmp/diff || {{ head -5 /tmp/diff; false; }}", 300)
        host.do("umount /mnt/room && losetup -d /dev/loop0")
    with report.test("the kernel had nothing else to complain about than the writes that were refused"):
        _expect_refused_alone(host.complaints()[before:], device)
        host.target.snapctl("namespace", "detach", NQN, str(NSID))


def _attach(host: OperatedHost, xio: Sequence[str]) -> None:
    volume, room = host.target.folder / "dataset.xio", host.target.folder / "room.raw"
    command = [*xio, "pack", str(SOURCE), "--dtype", "u32", "--store-as", "u16+lz4", "--lba", str(BLOCK), "-o", str(volume)]
    packed = subprocess.run(command, capture_output=True, text=True, check=False)
    if packed.returncode != 0:
        raise Unexpected(f"xio pack ended with {packed.returncode}: {packed.stderr.strip()}")
    with room.open("wb") as file:
        file.truncate(ROOM_BYTES)
    host.target.snapctl("namespace", "attach", NQN, f"mixed:{volume}+file:{room}", "--nsid", str(NSID), "--lba", str(BLOCK))
    shown = host.target.asked("namespace", "show", NQN, str(NSID))["namespace"]
    parts = [(int(part["first_lba"]), int(part["block_count"]), part["kind"], part["read_only"]) for part in shown["parts"]]
    dataset = (0, DATASET_BLOCKS, "NAMESPACE_KIND_VIEW", True)
    expect("parts", parts, [dataset, (DATASET_BLOCKS, ROOM_BYTES // BLOCK, "NAMESPACE_KIND_RAW", False)])


def _source_sha256() -> str:
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()


def _dataset_sha256(host: OperatedHost, device: str) -> str:
    """Of the bytes that are data, past the page cache."""
    read = f"dd if={device} bs=64k count={DATASET_BLOCKS * BLOCK} iflag=direct,count_bytes status=none"
    return host.do(f"{read} | head -c {SOURCE.stat().st_size} | sha256sum").split()[0]


def _sums(folder: str) -> str:
    return f"(cd {folder} && find . -type f -exec sha256sum {{}} + | sort)"


def _expect_refused_alone(complaints: Sequence[str], device: str) -> None:
    """Two lines of each refused write, nvme's and the block layer's, and no other line about this disk."""
    # With multipath, the kernel names the path to the disk: nvme0c0n1.
    name = re.sub(r"nvme(\d+)n", r"nvme\1(c\\d+)?n", device[5:])
    # Memory is a new disk after kill -9.
    other_disk = re.compile(rf"identifiers changed for nsid (?!{NSID}$)\d+$")
    left = [line for line in complaints if not other_disk.search(line)]
    for lba, blocks in REFUSED:
        sector = lba * BLOCK // 512
        for told in (
            rf"{name}: I/O Cmd\(0x1\) @ LBA {lba}, {blocks} blocks, I/O Error \(sct 0x1 / sc 0x82\) DNR",
            rf"critical medium error, dev {name}, sector {sector} op 0x1:\(WRITE\) ",
        ):
            lines = [line for line in left if re.search(told, line)]
            expect_that(f"one line is {told}: {complaints}", len(lines) == 1)
            left.remove(lines[0])
    expect("other complaints", left, [])
