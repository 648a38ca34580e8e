"""Views at 4 KiB, opened with each format's own reader; the values are those that numpy and ml_dtypes convert.

Run by ci/formats/test, in an environment that has the readers. llm.c's loader is C in its repository: its checks are written here.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import ml_dtypes
import numpy as np

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures/formats"
sys.path.insert(0, str(FIXTURES))

import foreign
import gguf
import safetensors
import xxhash

VIEW = os.environ["XIO_VIEW"]


def same(left: np.ndarray, right: np.ndarray) -> bool:
    """Every bit, so that -0.0 is not 0.0."""
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def narrowed(values: np.ndarray, dtype: object) -> np.ndarray:
    with np.errstate(over="ignore"):
        return values.astype(dtype)


class Readers(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def view(self, source: str | Path, rules: str, name: str) -> Path:
        out = self.folder / name
        out.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([VIEW, FIXTURES / source, rules, "4096", out], check=True)
        return out

    def test_safetensors(self) -> None:
        with safetensors.safe_open(FIXTURES / "safetensors/mixed.safetensors", "np") as source:
            stored = {name: source.get_tensor(name) for name in source.keys()}
            metadata = source.metadata()
        path = self.view("safetensors/mixed.safetensors", "*@2+=f16", "a.safetensors")
        self.assertEqual(8 + int.from_bytes(path.read_bytes()[:8], "little"), 4096)
        with safetensors.safe_open(path, "np") as view:
            self.assertEqual(set(view.keys()), set(stored))
            self.assertEqual(view.metadata(), metadata)
            for name, values in stored.items():
                wide = values.dtype.kind == "f" and values.ndim >= 2
                self.assertTrue(same(view.get_tensor(name), narrowed(values, np.float16) if wide else values), name)

    def test_safetensors_bf16(self) -> None:
        path = self.view("safetensors/mixed.safetensors", "wide=keep,*@2+=bf16", "a.safetensors")
        tensors = dict(safetensors.deserialize(path.read_bytes()))
        stored = dict(safetensors.deserialize((FIXTURES / "safetensors/mixed.safetensors").read_bytes()))
        info, values = tensors["a.weight"], np.frombuffer(stored["a.weight"]["data"], np.float32)
        self.assertEqual((info["dtype"], list(info["shape"])), ("BF16", [3, 5]))
        self.assertEqual(bytes(info["data"]), values.astype(ml_dtypes.bfloat16).tobytes())

    def test_npy(self) -> None:
        for name, rules, dtype in (("plane", "f16", np.float16), ("columns", "f64", np.float64), ("ids-v2", "u16", np.uint16), ("scalar", "f32", np.float32)):
            path = self.view(f"npy/{name}.npy", rules, f"{name}.npy")
            stored = np.load(FIXTURES / f"npy/{name}.npy")
            view = np.load(path)
            self.assertTrue(same(view, narrowed(stored, dtype)), name)
            self.assertEqual(view.flags.f_contiguous, stored.flags.f_contiguous)
            mapped = np.load(path, mmap_mode="r")
            self.assertEqual(mapped.ctypes.data % 4096, 0)
            self.assertTrue(same(np.asarray(mapped), view), name)

    def test_megatron(self) -> None:
        for name in ("text", "modes"):
            self.view(f"megatron/{name}-i32", "u16", f"{name}.idx")
            shutil.move(self.folder / f"{name}.idx.idx", self.folder / f"{name}.idx")
            shutil.move(self.folder / f"{name}.idx.bin", self.folder / f"{name}.bin")
            open_dataset = foreign.indexed_dataset.IndexedDataset
            for mmap in (True, False):
                stored = open_dataset(str(FIXTURES / f"megatron/{name}-i32"), multimodal=name == "modes", mmap=mmap)
                view = open_dataset(str(self.folder / name), multimodal=name == "modes", mmap=mmap)
                self.assertEqual(len(view), len(stored))
                self.assertTrue(same(view.document_indices, stored.document_indices))
                for number in range(len(stored)):
                    ours, theirs = view[number], stored[number]
                    if name == "modes":
                        self.assertEqual(ours[1], theirs[1])
                        ours, theirs = ours[0], theirs[0]
                    self.assertTrue(same(ours, theirs.astype(np.uint16)), number)

    def test_gguf(self) -> None:
        stored = gguf.GGUFReader(FIXTURES / "gguf/aligned.gguf")
        view = gguf.GGUFReader(self.view("gguf/aligned.gguf", "*@2+=f16", "a.gguf"))
        self.assertEqual(view.alignment, 256)
        self.assertEqual(list(view.fields), list(stored.fields))
        self.assertEqual(view.fields["general.file_type"].contents(), 1)
        types = []
        for ours, theirs in zip(view.tensors, stored.tensors, strict=True):
            types.append(ours.tensor_type.name)
            values = narrowed(theirs.data, np.float16) if ours.tensor_type.name == "F16" else theirs.data
            self.assertTrue(same(ours.data, values), ours.name)
            self.assertEqual(ours.data_offset % 256, 0)
        self.assertEqual(types, ["F16", "F32", "F16", "Q8_0"])

    def test_mds(self) -> None:
        index = json.loads((FIXTURES / "mds/f32/index.json").read_text())
        changed = json.loads((FIXTURES / "mds/f16/index.json").read_text())
        for entry, of_view in zip(index["shards"], changed["shards"], strict=True):
            name = entry["raw_data"]["basename"]
            path = self.view(f"mds/f32/{name}", "f16", name)
            hashes = {"sha1": hashlib.sha1(path.read_bytes()).hexdigest(), "xxh64": xxhash.xxh64(path.read_bytes()).hexdigest()}
            self.assertEqual(of_view["raw_data"], {"basename": name, "bytes": path.stat().st_size, "hashes": hashes})
            stored = foreign.MDSReader.from_json(str(FIXTURES / "mds/f32"), "", entry)
            view = foreign.MDSReader.from_json(str(self.folder), "", of_view)
            for number in range(entry["samples"]):
                ours, theirs = (reader.decode_sample(reader.get_sample_data(number)) for reader in (view, stored))
                for column in ("any", "fixed", "typed"):
                    self.assertTrue(same(ours[column], narrowed(theirs[column], np.float16)), column)
                self.assertEqual((ours["label"], ours["text"]), (theirs["label"], theirs["text"]))

    def test_llmc(self) -> None:
        path = self.view("llmc/ids-u32.bin", "u16", "ids.bin")
        header = np.fromfile(path, np.int32, 256)
        self.assertEqual((header[0], header[1], header[3:].any()), (20240520, 1, False))
        self.assertEqual(path.stat().st_size, 1024 + 2 * int(header[2]))
        stored = np.fromfile(FIXTURES / "llmc/ids-u32.bin", np.uint32, offset=1024)
        self.assertTrue(same(np.fromfile(path, np.uint16, offset=1024), stored.astype(np.uint16)))

    def test_model_as_a_hub_lays_it_out(self) -> None:
        blobs, snapshot = self.folder / "blobs", self.folder / "snapshots/0123"
        blobs.mkdir()
        snapshot.mkdir(parents=True)
        for number, path in enumerate(sorted((FIXTURES / "model/f32").iterdir())):
            shutil.copy(path, blobs / f"{number}")
            (snapshot / path.name).symlink_to(f"../../blobs/{number}")
        out = self.view(snapshot, "*norm*=keep,bf16", "view")
        self.assertEqual(json.loads((out / "config.json").read_text())["torch_dtype"], "bfloat16")
        index = json.loads((out / "model.safetensors.index.json").read_text())
        total = 0
        for tensor, shard in index["weight_map"].items():
            info = dict(safetensors.deserialize((out / shard).read_bytes()))[tensor]
            self.assertEqual(info["dtype"], {"model.norm.weight": "F32", "model.ids": "I64"}.get(tensor, "BF16"))
            total += len(info["data"])
        self.assertEqual(index["metadata"]["total_size"], total)
        self.assertEqual((out / "tokenizer.json").read_text(), (FIXTURES / "model/f32/tokenizer.json").read_text())


if __name__ == "__main__":
    unittest.main()
