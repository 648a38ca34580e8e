"""What the comparison is run with, in the cache: the rivals' programs as Debian packages, unpacked, and a virtual environment."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from debian.root import Recipe, Root, cache_folder, ensure_root, exclusive

ROOT = Path(__file__).resolve().parents[3]
RIVALS = Recipe("rivals", packages=("erofs-utils", "erofsfuse", "squashfs-tools", "squashfuse", "nbdkit", "nbdfuse", "xz-utils"))
# MosaicML's writer and reader among them, without torch.
FORMATS = ROOT / "fixtures/formats/requirements.txt"
PACKAGES = ["numpy==2.4.6", "tiktoken==0.12.0", "tokenizers==0.23.3", "zstd==1.5.7.2"]


def ensure_rivals() -> Root:
    return ensure_root(RIVALS)


def ensure_python() -> Path:
    """The interpreter of the environment, made if it is not there yet."""
    recipe = FORMATS.read_text(encoding="utf-8") + " ".join(PACKAGES) + sys.version
    path = cache_folder() / f"comparison-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
    complete = path / "complete"
    with exclusive(path):
        if not complete.exists():
            shutil.rmtree(path, ignore_errors=True)
            venv.create(path, with_pip=True)
            pip = (path / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check")
            subprocess.run([*pip, "--no-deps", "--require-hashes", "-r", FORMATS], check=True)
            # Without pip's words on what MosaicML wants for clouds.
            subprocess.run([*pip, *PACKAGES], check=True, stderr=subprocess.DEVNULL)
            complete.touch()
    return path / "bin/python"
