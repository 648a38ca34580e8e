"""Programs of the build machine in a guest: with their own loader and libraries, since the guest's C library may be older."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from debian.root import run_quietly


def lay_out(folder: Path, programs: Mapping[str, Path]) -> None:
    """Makes `folder`, a guest's /share, one that has each of the programs under its name."""
    libraries = folder / "lib"
    libraries.mkdir(parents=True)
    for name, path in programs.items():
        shutil.copy(path, libraries / f"{name}.program")
        # "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...)", and the loader alone.
        needed = re.findall(r"(?:=> |^\s*)(/\S+) \(0x", run_quietly(["ldd", str(path)]), re.MULTILINE)
        for library in map(Path, needed):
            shutil.copy(library, libraries / library.name)
        loader = next(Path(library).name for library in needed if Path(library).name.startswith("ld-"))
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec /share/lib/{loader} --library-path /share/lib /share/lib/{name}.program "$@"\n')
        script.chmod(0o755)
