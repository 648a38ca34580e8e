"""A Rust and C toolchain for aarch64 out of Debian packages, run from a private root.

Nothing is installed and no namespace or chroot is needed: each program is started through the root's own loader by a small
script. gcc starts its own parts (cc1, as, ld ...) by itself, so it is given a folder of such scripts with -B, where it looks
first. qemu-aarch64 is linked statically and starts as it is.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from debian.root import Recipe, cache_folder, ensure_root

TARGET = "aarch64-unknown-linux-gnu"
# The oldest processor among the DPUs (BlueField-2): what runs on it runs on the others.
PROCESSOR = "cortex-a72"
RECIPE = Recipe(
    "aarch64",
    packages=(
        "gcc-aarch64-linux-gnu",
        "libc6-dev-arm64-cross",
        "libstd-rust-web-dev:arm64",
        "qemu-user",
        # trixie's own rustc is older than this workspace's rust-version, and that of its backports comes to one architecture days before it comes to
        # another; this is the newer one that trixie carries for its browsers.
        "rustc-web",
    ),
    foreign=("arm64",),
)


@dataclass(frozen=True)
class Toolchain:
    """Scripts in one folder, and the settings that make cargo and the cc crate use them."""

    folder: Path

    def environment(self) -> dict[str, str]:
        upper, lower = TARGET.upper().replace("-", "_"), TARGET.replace("-", "_")
        return {
            "RUSTC": str(self.folder / "rustc"),
            "CARGO_BUILD_TARGET": TARGET,
            f"CARGO_TARGET_{upper}_LINKER": str(self.folder / "gcc"),
            f"CARGO_TARGET_{upper}_RUNNER": str(self.folder / "qemu"),
            f"CC_{lower}": str(self.folder / "gcc"),
            f"AR_{lower}": str(self.folder / "ar"),
        }


def ensure_toolchain() -> Toolchain:
    """The toolchain, installed if it is not there yet; about 40 s from nothing."""
    root = ensure_root(RECIPE)
    folder = cache_folder() / "aarch64-tools"
    parts = folder / "gcc-parts"
    parts.mkdir(parents=True, exist_ok=True)
    usr = root.path / "usr"
    (gcc_folder,) = (usr / "libexec/gcc-cross/aarch64-linux-gnu").glob("[0-9]*")
    gcc = f"usr/bin/aarch64-linux-gnu-gcc-{gcc_folder.name}"
    for name in ("cc1", "collect2", "lto-wrapper"):
        _script(parts / name, root.command(str(gcc_folder.relative_to(root.path) / name)))
    _script(parts / "as", root.command("usr/bin/aarch64-linux-gnu-as"))
    _script(parts / "ld", root.command("usr/bin/aarch64-linux-gnu-ld.bfd"))
    _script(folder / "gcc", root.command(gcc, "-B", f"{parts}/", f"--sysroot={root.path}"))
    _script(folder / "ar", root.command("usr/bin/aarch64-linux-gnu-ar"))
    _script(folder / "rustc", root.command("usr/bin/rustc", "--sysroot", str(usr)))
    _script(folder / "qemu", [str(usr / "bin/qemu-aarch64"), "-cpu", PROCESSOR, "-L", str(usr / "aarch64-linux-gnu")])
    return Toolchain(folder)


def _script(path: Path, command: list[str]) -> None:
    """Renamed into place, so that a build running beside never sees half a script."""
    text = f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n'
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        new = path.with_name(path.name + ".new")
        new.write_text(text, encoding="utf-8")
        new.chmod(0o755)
        new.rename(path)
