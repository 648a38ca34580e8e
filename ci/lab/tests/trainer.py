"""The demo's folder on a disk, as a trainer's programs read it: numpy and safetensors in the guest, through the kernel's mount."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

from debian.root import Recipe
from lab.guest import Guest
from lab.userland import SERIAL

from .host import Host
from .report import Report, expect
from .volumes import FIXTURES

DATASET = FIXTURES.parent / "dataset"
PRESENTED = "source,f16"
RECIPE = Recipe("numpy", packages=("e2fsprogs", "python3-minimal", "python3-numpy", "python3-safetensors"))
PROGRAM = Path(__file__).with_name("trainer_guest.py")
# Where Debian's alternatives would have linked to.
LIBRARIES = ":".join(f"/usr/lib/x86_64-linux-gnu/{name}" for name in ("blas", "lapack"))


def test_trainer(report: Report, host: Host, nsid: int) -> None:
    """The guest has a userland of RECIPE."""
    guest = host.guest
    with report.test("a trainer's folder: mount, and numpy beside it"):
        userland = guest.run(f"modprobe ext4; cd /sys/block && grep -lx {SERIAL} vd*/serial").checked().split("/")[0]
        guest.run(f"mkdir -p /mnt/u && mount -t ext4 /dev/{userland} /mnt/u && mkdir /mnt/u/data").checked()
        guest.run(f"mount -t erofs -o ro {host.device(nsid)} /mnt/u/data && cp /usr/bin/trainer /mnt/u/trainer.py").checked()
    with report.test("a trainer's folder: the Megatron pair's documents and 200 sequences anywhere, of mapped files"):
        expect("digests", told(guest, "tokens"), tokens())
    with report.test("a trainer's folder: each bf16 tensor that safetensors loads"):
        expect("tensors", told(guest, "weights"), weights())
    with report.test("a trainer's folder: embeddings in f32, and in f16 as numpy rounds them"):
        stored = (DATASET / "embeddings.npy").read_bytes()[128:]
        found = told(guest, "embeddings")
        expect("f32", found["f32"], ["float32", [512, 384], sha256(stored)])
        expect("f16", found["f16"][:2], ["float16", [512, 384]])
        expect("f16, as numpy makes it of the f32", found["f16"][2], found["rounded"])
    with report.test("a trainer's folder: the manifest's errors are those that numpy measures"):
        measured = told(guest, "errors")
        manifest = json.loads(guest.run("cat /mnt/u/data/.xio/manifest.json").checked())
        (loss,) = (change["loss"] for view in manifest["views"] for change in view["changes"])
        expect("largest error", loss["largest_error"], measured["largest"])
        expect("RMS error, to nine digits", f"{loss['rms_error']:.9e}", f"{measured['rms']:.9e}")
        expect("saturated and NaN", (loss["saturated"], loss["nans"]), (0, 0))
    with report.test("a trainer's folder: unmount"):
        guest.run("umount /mnt/u/data && umount /mnt/u").checked()


def told(guest: Guest, what: str) -> dict[str, list[object]]:
    """What the program in the guest prints."""
    asked = f"LD_LIBRARY_PATH={LIBRARIES} chroot /mnt/u /usr/bin/python3 /trainer.py {what}"
    return json.loads(guest.run(asked, timeout_s=120).checked())


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tokens() -> dict[str, str]:
    """Digests of the documents and of the sequences, of the array that has the same ids without an index."""
    ids = (FIXTURES / "o200k-u32.bin").read_bytes()
    end_of_text = struct.pack("<I", 199_999)
    ends = [at + 4 for at in range(0, len(ids), 4) if ids[at : at + 4] == end_of_text]
    starts = [0, *ends[:-1]]
    documents = {f"document {number}": sha256(ids[start:end]) for number, (start, end) in enumerate(zip(starts, ends, strict=True))}
    sequences = hashlib.sha256()
    for number in range(200):
        first = number * 7919 % (len(ids) // 4 - 4096)
        sequences.update(ids[4 * first : 4 * (first + 4096)])
    return documents | {"sequences": sequences.hexdigest()}


def weights() -> dict[str, list[object]]:
    """Type, shape and digest of each tensor, taken from the file as its format's page says it lies."""
    file = (DATASET / "model.safetensors").read_bytes()
    data = 8 + int.from_bytes(file[:8], "little")
    header = json.loads(file[8:data])
    header.pop("__metadata__")
    place = {name: slice(*(data + at for at in info["data_offsets"])) for name, info in header.items()}
    return {name: [info["dtype"], info["shape"], sha256(file[place[name]])] for name, info in header.items()}
