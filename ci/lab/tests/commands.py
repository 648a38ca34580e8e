"""The NVM commands besides read and write, as nvme-cli and the block layer send them: exact statuses, exact bytes."""

from __future__ import annotations

from .host import Host
from .report import Report, expect, expect_that
from .volumes import Namespace

UNRECOVERED_READ_ERROR = 0x281
COMPARE_FAILURE = 0x285
OVERLAPPING_IO_RANGE = 0x187
SIZE_LIMIT_EXCEEDED = 0x183
LBA_OUT_OF_RANGE = 0x080

# Compare, Write Uncorrectable, Dataset Management, Write Zeroes, Verify, Copy.
ONCS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 7 | 1 << 8
BLOCKS = 8


def test_commands(report: Report, host: Host, raw: Namespace) -> None:
    device, block = host.device(raw.nsid), host.target.lba_bytes
    end = raw.size_bytes // block

    def sent(command: str, arguments: str = "") -> int:
        return host.status_of(f"{command} {device} {arguments}")

    def moved(command: str, first: int, blocks: int, file: str) -> int:
        return sent(command, f"-s {first} -c {blocks - 1} -z {blocks * block} -d {file}")

    def same(file: str, start_block: int, blocks: int, zeros: bool) -> bool:
        """Whether blocks of a file are zeros, or what was written."""
        wanted = f"head -c {blocks * block} /dev/zero" if zeros else part("/tmp/data", start_block, blocks)
        return digest(part(file, start_block, blocks)) == digest(wanted)

    def part(file: str, start_block: int, blocks: int) -> str:
        return f"tail -c +{start_block * block + 1} {file} | head -c {blocks * block}"

    def digest(script: str) -> str:
        return host.sh(f"({script}) | sha256sum").checked()

    with report.test("id-ctrl and id-ns announce the optional commands"):
        fields = host.json(f"id-ctrl /dev/{host.controller()}")
        expect("oncs", fields["oncs"] & ONCS, ONCS)
        expect("fuses", fields["fuses"], 1)
        expect("vwc: flush of all namespaces", fields["vwc"] >> 1 & 3, 3)
        fields = host.json(f"id-ns {device}")
        expect("dlfeat of memory: zeros, DEAC", fields["dlfeat"], 0b1001)
        expect_that("mssrl, mcl, msrc", min(fields["mssrl"], fields["mcl"], fields["msrc"]) > 0)
    host.sh(f"head -c {BLOCKS * block} /dev/urandom >/tmp/data; head -c {BLOCKS * block} /dev/zero >/tmp/zeros").checked()
    with report.test("compare: equal, and Compare Failure"):
        expect("write", moved("write", 0, BLOCKS, "/tmp/data"), 0)
        expect("equal", moved("compare", 0, BLOCKS, "/tmp/data"), 0)
        expect("different", moved("compare", 0, BLOCKS, "/tmp/zeros"), COMPARE_FAILURE)
    with report.test("copy: the bytes, and what is refused"):
        expect("copy", sent("copy", "--sdlba=100 --slbs=2,0 --blocks=1,0 --format=0"), 0)
        expect("read", moved("read", 100, 3, "/tmp/copied"), 0)
        wanted = f"{part('/tmp/data', 2, 2)}; {part('/tmp/data', 0, 1)}"
        expect("digest of the copy", digest("cat /tmp/copied"), digest(wanted))
        expect("overlapping", sent("copy", "--sdlba=1 --slbs=0 --blocks=3 --format=0"), OVERLAPPING_IO_RANGE)
        expect("too long", sent("copy", "--sdlba=1000 --slbs=0 --blocks=512 --format=0"), SIZE_LIMIT_EXCEEDED)
        expect("outside", sent("copy", f"--sdlba={end} --slbs=0 --blocks=0 --format=0"), LBA_OUT_OF_RANGE)
    with report.test("write-zeroes and dsm: zeros there and nowhere else"):
        expect("write-zeroes", sent("write-zeroes", "-s 1 -c 1"), 0)
        expect("dsm", sent("dsm", "--ad --slbs=4,6 --blocks=1,1"), 0)
        expect("read", moved("read", 0, BLOCKS, "/tmp/read"), 0)
        for number in range(BLOCKS):
            expect_that(f"block {number}", same("/tmp/read", number, 1, zeros=number in (1, 2, 4, 6)))
        expect("outside", sent("write-zeroes", f"-s {end} -c 0"), LBA_OUT_OF_RANGE)
    with report.test("write-uncor, verify: unreadable until written, and in the error log"):
        expect("verify", sent("verify", f"-s 0 -c {BLOCKS - 1}"), 0)
        expect("write-uncor", sent("write-uncor", "-s 5 -c 0"), 0)
        expect("read", moved("read", 0, BLOCKS, "/tmp/read"), UNRECOVERED_READ_ERROR)
        entry = host.json(f"error-log /dev/{host.controller()} -e 1")["errors"][0]
        expect("logged LBA, NSID", (entry["lba"], entry["nsid"]), (5, raw.nsid))
        expect("verify", sent("verify", f"-s 0 -c {BLOCKS - 1}"), UNRECOVERED_READ_ERROR)
        expect("write", moved("write", 0, BLOCKS, "/tmp/data"), 0)
        expect("read", moved("read", 0, BLOCKS, "/tmp/read"), 0)
        expect_that("what was written", same("/tmp/read", 0, BLOCKS, zeros=False))
    with report.test("flush"):
        expect("status", sent("flush"), 0)


def test_trim(report: Report, host: Host, raw: Namespace) -> None:
    device = host.device(raw.nsid)
    with report.test("blkdiscard and fstrim"):
        host.sh(
            f"""set -e
modprobe ext4
blkdiscard {device}
mkfs.ext4 -q {device}
mount {device} /mnt
head -c 2000000 /dev/urandom >/mnt/kept
cp /mnt/kept /mnt/gone
sha256sum /mnt/kept >/tmp/kept.sum
rm /mnt/gone
fstrim /mnt
umount /mnt
e2fsck -fn {device}
mount -o ro {device} /mnt
sha256sum -c /tmp/kept.sum
umount /mnt
""",
            timeout_s=120,
        ).checked()
