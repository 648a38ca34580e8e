"""Builds the guest's initramfs: busybox, the tools, the kernel modules, and the lab's own init."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from debian.root import InstallError, Root, run_quietly

from .cpio import Cpio
from .kernel import kernel_release

# Programs that a script in the guest may call, beside busybox.
PROGRAMS = (
    "usr/sbin/nvme",
    "usr/bin/fio",
    "usr/bin/kmod",
    "usr/bin/python3.13",
    "usr/bin/dd",
    "usr/bin/sha256sum",
    "usr/sbin/mke2fs",
    "usr/sbin/e2fsck",
    "usr/sbin/resize2fs",
    "usr/sbin/mkfs.xfs",
    "usr/sbin/xfs_repair",
    "usr/bin/fsck.erofs",
    "usr/bin/rdma",
    "usr/bin/rping",
    "usr/bin/ib_read_bw",
    "usr/bin/ib_send_bw",
)
# Libraries that programs from outside open at run time or are linked with: rdma-core with soft-RoCE's provider, and what a Rust program needs.
LIBRARIES = (
    "usr/lib/x86_64-linux-gnu/libgcc_s.so.1",
    "usr/lib/x86_64-linux-gnu/libibverbs.so.1",
    "usr/lib/x86_64-linux-gnu/librdmacm.so.1",
)
RXE_PROVIDER = "usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so"
RXE_DRIVER = "etc/libibverbs.d/rxe.driver"
LINKS = {
    "usr/bin/python3": "python3.13",
    "usr/sbin/mkfs.ext4": "mke2fs",
    "usr/sbin/modprobe": "../bin/kmod",
    "usr/sbin/depmod": "../bin/kmod",
    "usr/bin/lsmod": "kmod",
}
# Modules by name; what they depend on comes with them.
MODULES = (
    *("virtio_net", "virtio_blk", "9p", "9pnet_virtio"),
    *("nvme", "nvme_tcp", "nvme_loop", "nvmet", "nvmet_tcp"),
    *("brd", "loop", "null_blk", "ublk_drv", "ext4", "xfs", "erofs"),
    *("dummy", "nvme_rdma", "nvmet_rdma", "rdma_rxe", "ib_uverbs", "rdma_ucm"),
    *("nfs", "nfsv4", "nfsd"),
)
# Modules that a kernel of 6.12 asks for by an algorithm's name, which no dependency says (rdma_rxe: CRC-32). Later kernels have no such modules.
MODULES_BY_ALGORITHM = ("crc32c_intel", "crc32c_generic", "crc32_generic")
# Parts of Python's library that no script here needs.
PYTHON_LEFT_OUT = {"__pycache__", "test", "idlelib", "tkinter", "ensurepip", "pydoc_data", "venv", "unittest", "turtledemo"}
LIBRARY_FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/ceph")
LOADER = "usr/lib64/ld-linux-x86-64.so.2"
GUEST_FILES = Path(__file__).parent / "guest"


def build_initramfs(guest: Root, booted: Root, staged: Path) -> bytes:
    """The archive's bytes: programs of `guest`, modules of `booted`'s kernel. `staged` is an empty folder to work in."""
    archive = Cpio()
    for name in ("bin", "sbin", "lib", "lib64"):
        archive.add_folder(f"usr/{name}")
        archive.add_link(name, f"usr/{name}")
    for name in ("proc", "sys", "dev", "tmp", "run", "etc/nvme", "root", "mnt", "share"):
        archive.add_folder(name)
    archive.add_path("usr/bin/busybox", guest.path / "usr/bin/busybox")
    _add_programs(archive, guest)
    _add_libraries(archive, guest)
    _add_python(archive, guest)
    _add_modules(archive, guest, booted, staged)
    # Fixed, so that a target sees one and the same host in every run.
    archive.add_file("etc/nvme/hostnqn", b"nqn.2014-08.org.nvmexpress:uuid:6c8a4f6e-9d0b-4a55-8b8e-0f1c6a1e2b01\n")
    archive.add_file("etc/nvme/hostid", b"6c8a4f6e-9d0b-4a55-8b8e-0f1c6a1e2b01\n")
    for path in sorted(GUEST_FILES.iterdir()):
        archive.add_file(path.name if path.name == "init" else f"usr/bin/{path.name}", path.read_bytes(), executable=True)
    return archive.to_bytes()


def _add_programs(archive: Cpio, guest: Root) -> None:
    archive.add_path(LOADER, guest.path / LOADER)
    for program in PROGRAMS:
        archive.add_path(program, guest.path / program)
        for library in _libraries(guest, program):
            archive.add_path(f"usr/lib/x86_64-linux-gnu/{library.name}", library)
    for name, target in LINKS.items():
        archive.add_link(name, target)


def _add_libraries(archive: Cpio, guest: Root) -> None:
    (provider,) = guest.path.glob(RXE_PROVIDER)
    for name in (*LIBRARIES, str(provider.relative_to(guest.path))):
        archive.add_path(name, guest.path / name)
        for library in _libraries(guest, name):
            archive.add_path(f"usr/lib/x86_64-linux-gnu/{library.name}", library)
    archive.add_path(RXE_DRIVER, guest.path / RXE_DRIVER)


def _libraries(guest: Root, program: str) -> Iterator[Path]:
    """The shared libraries that the loader finds for `program`."""
    folders = ":".join(str(guest.path / folder) for folder in LIBRARY_FOLDERS)
    listing = run_quietly(
        [str(guest.path / LOADER), "--library-path", folders, "--list", str(guest.path / program)]
    )
    for line in listing.splitlines():
        name, arrow, found = line.strip().partition(" => ")
        if arrow:
            path = Path(found.split(" (")[0])
            if not path.is_relative_to(guest.path):
                raise InstallError(f"{program} needs {name}, which the guest root lacks")
            yield path


def _add_python(archive: Cpio, guest: Root) -> None:
    """Python's library as bytecode alone: to compile it in the guest would cost seconds at each start."""
    library = guest.path / "usr/lib/python3.13"
    python = guest.command("usr/bin/python3.13", "-I", "-S")
    environment = {**os.environ, "PYTHONHOME": str(guest.path / "usr")}
    run_quietly([*python, "-m", "compileall", "-q", "-b", "-s", str(guest.path), str(library)], env=environment)
    for folder, names, files in os.walk(library):
        names[:] = [name for name in names if name not in PYTHON_LEFT_OUT]
        for path in (Path(folder) / name for name in files):
            if path.suffix in (".pyc", ".so"):
                archive.add_path(str(path.relative_to(guest.path)), path)


def _add_modules(archive: Cpio, guest: Root, booted: Root, staged: Path) -> None:
    """The modules in MODULES with their dependencies, unpacked here so that the guest does not have to."""
    release = kernel_release(booted)
    whole = booted.path / "usr/lib/modules" / release
    _depmod(guest, booted.path, release)
    chosen = staged / "usr/lib/modules" / release
    for relative in with_dependencies(MODULES, MODULES_BY_ALGORITHM, whole / "modules.dep"):
        compressed = chosen / relative
        compressed.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(whole / relative, compressed)
    run_quietly(guest.command("usr/bin/xz", "-d", *map(str, chosen.rglob("*.ko.xz"))))
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        shutil.copyfile(whole / name, chosen / name)
    (staged / "lib").symlink_to("usr/lib")
    _depmod(guest, staged, release)
    for path in sorted(chosen.rglob("*")):
        if path.is_file():
            archive.add_path(str(path.relative_to(staged)), path)


def _depmod(guest: Root, base: Path, release: str) -> None:
    # kmod is one program with many names; the loader passes the name on with --argv0.
    loader, *rest = guest.command("usr/bin/kmod", "-b", str(base), release)
    run_quietly([loader, "--argv0", "depmod", *rest])


def with_dependencies(names: Sequence[str], where_there: Sequence[str], modules_dep: Path) -> list[str]:
    """Paths of the named modules and of what they depend on, from lines "path: path path ...". Those of `where_there` may be missing."""
    dependencies = {}
    for line in modules_dep.read_text(encoding="utf-8").splitlines():
        path, _, needed = line.partition(":")
        dependencies[Path(path).name.split(".")[0].replace("-", "_")] = [path, *needed.split()]
    missing = [name for name in names if name not in dependencies]
    if missing:
        raise InstallError(f"{modules_dep} has no module {', '.join(missing)}")
    chosen = [*names, *(name for name in where_there if name in dependencies)]
    return sorted({path for name in chosen for path in dependencies[name]})
