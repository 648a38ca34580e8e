"""Raw stores take writes and give them back; volumes refuse them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from .host import Host
from .plan import apply_writes, random_writes
from .report import Report, expect
from .volumes import Namespace

WRITES = 70
WRITE_PROTECTED = 0x020


def test_raw(report: Report, host: Host, raw: Sequence[Namespace], disk: Path, seed: int) -> None:
    """`disk` is the file behind the last of `raw`, looked at on the build machine without the target's help."""
    for namespace in raw:
        device = host.device(namespace.nsid)
        writes = list(random_writes(namespace, device, WRITES, seed))
        wanted = hashlib.sha256(apply_writes(bytes(namespace.size_bytes), writes)).hexdigest()
        with report.test(f"{WRITES} writes to namespace {namespace.nsid} ({namespace.title}) read back"):
            (answer,) = host.blocks("write", writes)
            expect("sha256 by the guest's model", answer["sha256"], answer["wanted"])
            expect("sha256 by the build machine's model", answer["sha256"], wanted)
    with report.test("the raw file holds what was written"):
        expect("sha256 of the file", hashlib.sha256(disk.read_bytes()).hexdigest(), wanted)
    for namespace in raw:
        with report.test(f"fio verifies blocks of mixed sizes in namespace {namespace.nsid} ({namespace.title})"):
            host.sh(_fio_script(host.device(namespace.nsid)), timeout_s=120).checked()
    with report.test("ext4: make, fill, check, read back"):
        host.sh(_ext4_script(host.device(raw[-1].nsid)), timeout_s=120).checked()


def _fio_script(device: str) -> str:
    """Every block once, written and read back by turns with a CRC in each; the sizes are from one block to more than MDTS is likely to be."""
    return (
        f"fio --name=verify --filename={device} --rw=randwrite --bssplit=4k/40:8k/20:20k/15:64k/15:256k/7:2m/3 --blockalign=4k "
        "--size=100% --ioengine=libaio --iodepth=16 --direct=1 --verify=crc32c --verify_backlog=32 --verify_fatal=1 --randseed=1 "
        "--group_reporting --minimal >/tmp/fio.out 2>&1 || { cat /tmp/fio.out; exit 1; }"
    )


def _ext4_script(device: str) -> str:
    return f"""set -e
modprobe ext4
mkfs.ext4 -q {device}
mount {device} /mnt
mkdir /mnt/files
cp /usr/bin/python3.13 /usr/sbin/nvme /mnt/files
(cd /usr && sha256sum bin/python3.13 sbin/nvme) | sed 's,  .*/,  /mnt/files/,' >/tmp/sums
umount /mnt
e2fsck -fn {device}
echo 3 >/proc/sys/vm/drop_caches
mount -o ro {device} /mnt
sha256sum -c /tmp/sums
umount /mnt
"""


def test_protected(report: Report, host: Host, namespaces: Sequence[Namespace]) -> None:
    """Before any read test: what these write would be seen there."""
    with report.test("volumes are write-protected, raw stores are not"):
        for namespace in namespaces:
            device = host.device(namespace.nsid)
            attributes = host.json(f"id-ns {device}")["nsattr"]
            expect(f"nsattr bit 0 of namespace {namespace.nsid}", attributes & 1, 0 if namespace.writable else 1)
            read_only = host.sh(f"cat /sys/block/{Path(device).name}/ro").checked().strip()
            expect(f"the host's ro flag of namespace {namespace.nsid}", read_only, "0" if namespace.writable else "1")
    device, block = host.device(namespaces[0].nsid), host.target.lba_bytes
    with report.test("a write command to a volume: Namespace is Write Protected"):
        host.sh(f"head -c {block} /dev/zero >/tmp/block").checked()
        expect("status", host.status_of(f"write {device} -s 0 -c 0 -z {block} -d /tmp/block"), WRITE_PROTECTED)
    with report.test("the host opens a volume for reading only"):
        result = host.sh(f"dd if=/dev/zero of={device} bs={block} count=1 conv=notrunc oflag=direct")
        expect("dd fails", result.status != 0, True)
