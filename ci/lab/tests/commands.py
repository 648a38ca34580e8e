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

# Commands Supported and Effects: by opcode, and the bits CSUPP and LBCC.
ADMIN_COMMANDS = (0x02, 0x06, 0x08, 0x09, 0x0A, 0x0C, 0x18)
CHANGING_COMMANDS = (0x01, 0x04, 0x08, 0x09, 0x19)
OTHER_COMMANDS = (0x00, 0x02, 0x05, 0x0C, 0x0D, 0x0E, 0x11, 0x15)
SUPPORTED, CONTENT_CHANGE = 1 << 0, 1 << 1

PAGE_BYTES = 4096
GONE_PAGES = 500
GONE_PAGE = "b'removed.' * 512"
# BLKZEROOUT of linux/fs.h; its arguments are an offset, a length and the device.
ZERO_OUT = (
    "python3 -c 'import fcntl, os, struct, sys; "
    'fcntl.ioctl(os.open(sys.argv[3], os.O_WRONLY), 0x127F, struct.pack("QQ", int(sys.argv[1]), int(sys.argv[2])))\''
)


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


def test_effects(report: Report, host: Host) -> None:
    with report.test("effects-log names each command that is there, and what changes blocks"):
        (log,) = [log for log in host.json(f"effects-log /dev/{host.controller()}") if log["command_set_identifier"] == 0]
        expect("admin commands", _effects(log["admin_cmd_set"]), dict.fromkeys(ADMIN_COMMANDS, SUPPORTED))
        changing = {opcode: SUPPORTED | CONTENT_CHANGE for opcode in CHANGING_COMMANDS}
        expect("I/O commands", _effects(log["io_cmd_set"]), dict.fromkeys(OTHER_COMMANDS, SUPPORTED) | changing)


def test_host_features(report: Report, host: Host) -> None:
    """Features that Linux itself sets while it connects, where the controller says that it has them."""
    admin = f"/dev/{host.controller()}"

    def data(feature: int, length: int) -> bytes:
        return bytes.fromhex(host.sh(f"nvme get-feature {admin} -f {feature:#x} -l {length} -b | od -An -v -tx1").checked())

    with report.test("get-feature 0eh: the clock that the host has set goes on"):
        before_s = int(host.sh("date +%s").checked())
        clock = data(0x0E, 8)
        after_s = int(host.sh("date +%s").checked())
        clock_s = int.from_bytes(clock[:6], "little") // 1000
        expect_that(f"{before_s} <= {clock_s} <= {after_s}, within two seconds", before_s - 2 <= clock_s <= after_s + 2)
        expect("set by Set Features, without a stop", clock[6] & 0b1111, 0b0010)
    with report.test("get-feature 16h: the host honours retry delays"):
        expect("ACRE", data(0x16, 512)[0], 1)
    with report.test("get-feature 0bh: the host wants to hear of namespaces"):
        printed = host.sh(f"nvme get-feature {admin} -f 0x0b").checked()
        expect_that("Namespace Attribute Notices", int(printed.rpartition(":")[2], 0) >> 8 & 1 == 1)


def _effects(entries: dict[str, int]) -> dict[int, int]:
    """By opcode, from keys such as "ACS_6 (Identify)"; without those that are not there."""
    by_opcode = {int(key.split("_")[1].split()[0]): effects for key, effects in entries.items()}
    return {opcode: effects for opcode, effects in by_opcode.items() if effects != 0}


def test_trim(report: Report, host: Host, namespace: Namespace) -> None:
    """What the block layer discards or zeroes reads as zeros; what is beside it stays."""
    device, size = host.device(namespace.nsid), namespace.size_bytes
    with report.test(f"blkdiscard and BLKZEROOUT of namespace {namespace.nsid} ({namespace.title}): zeros there and nowhere else"):
        host.sh(f"set -e\nhead -c {size} /dev/urandom >/tmp/model\ndd if=/tmp/model of={device} bs=1M oflag=direct status=none").checked()
        for limit in ("discard_max_bytes", "write_zeroes_max_bytes"):
            expect_that(f"{limit} is not 0", host.sh(f"cat /sys/block/{device[5:]}/queue/{limit}").checked().strip() != "0")
        # Longer than one command's blocks or a page of zeros, and neither ends at a round place.
        _zeroed(host, device, 301, 703, "blkdiscard -o {offset} -l {length} {device}")
        _zeroed(host, device, 2001, 507, f"{ZERO_OUT} {{offset}} {{length}} {{device}}")
        _zeroed(host, device, 0, size // PAGE_BYTES, "blkdiscard {device}")
    with report.test(f"fstrim of ext4 on namespace {namespace.nsid} ({namespace.title}): a removed file's blocks are zeros, another file is whole"):
        found = host.sh(_fstrim_script(device, size), timeout_s=120).checked()
        expect("blocks of the removed file, and those of them that are zeros", found.split()[-2:], [str(GONE_PAGES)] * 2)


def _zeroed(host: Host, device: str, first_page: int, pages: int, command: str) -> None:
    """Runs `command` for these pages of the device; then it is equal to /tmp/model with zeros in them, read past the page cache."""
    command = command.format(offset=first_page * PAGE_BYTES, length=pages * PAGE_BYTES, device=device)
    host.sh(
        f"""set -e
{command}
dd if=/dev/zero of=/tmp/model bs={PAGE_BYTES} seek={first_page} count={pages} conv=notrunc status=none
dd if={device} of=/tmp/seen bs=1M iflag=direct status=none
cmp /tmp/model /tmp/seen
"""
    ).checked()


def _fstrim_script(device: str, size_bytes: int) -> str:
    """Prints how many blocks held the removed file, and how many of these are zeros after fstrim."""
    return f"""set -e
modprobe ext4
head -c {size_bytes} /dev/urandom | dd of={device} bs=1M iflag=fullblock oflag=direct status=none
mkfs.ext4 -q -E nodiscard {device}
mount {device} /mnt
head -c 2000000 /dev/urandom >/mnt/kept
sha256sum /mnt/kept >/tmp/kept.sum
python3 -c "open('/mnt/gone', 'wb').write({GONE_PAGE} * {GONE_PAGES})"
sync
dd if={device} of=/tmp/before bs=1M iflag=direct status=none
rm /mnt/gone
sync
fstrim /mnt
umount /mnt
dd if={device} of=/tmp/after bs=1M iflag=direct status=none
e2fsck -fn {device}
mount -o ro {device} /mnt
sha256sum -c /tmp/kept.sum
umount /mnt
python3 - <<'END'
def pages(name):
    content = open(name, "rb").read()
    return [content[at : at + {PAGE_BYTES}] for at in range(0, len(content), {PAGE_BYTES})]
gone = [after for before, after in zip(pages("/tmp/before"), pages("/tmp/after")) if before == {GONE_PAGE}]
print(len(gone), gone.count(bytes({PAGE_BYTES})))
END
"""
