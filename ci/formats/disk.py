"""The demo's folder as a disk: packed, served, its files copied out of it over NVMe/TCP, opened with each format's own reader.

Run by ci/formats/test, in an environment that has the readers. What the files must hold, numpy and ml_dtypes say.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ml_dtypes
import numpy as np

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
DATASET = FIXTURES / "dataset"
sys.path.insert(0, str(FIXTURES / "formats"))

import foreign
import safetensors

XIO, SNAP_TARGET = os.environ["XIO"], os.environ["XIO_SNAP_TARGET"]
NQN = "nqn.2026-11.io.xio:formats"
PAIR = "tokens/o200k"
# Where o200k's <|endoftext|> closes a document.
END_OF_TEXT = 199_999
SEQUENCE_IDS = 4096
SEED = 20261122


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def copied_disk(dataset: Path, folder: Path) -> Path:
    """What `xio cp` makes of the disk that a target serves: the dataset as it is, and in f16."""
    volume, copy = folder / "dataset.xio", folder / "copy"
    subprocess.run([XIO, "pack", dataset, "--present-as", "source,f16", "-o", volume], check=True, stdout=subprocess.DEVNULL)
    serve = [SNAP_TARGET, volume, "--listen", "127.0.0.1:0", "--nqn", NQN, "--log", "warn"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as target:
        try:
            ready = next(line for line in target.stdout if line.startswith("ready "))
            url = f"nvme+tcp://{ready.split()[1]}/{NQN}?nsid=1"
            subprocess.run([XIO, "cp", url, copy], check=True, stdout=subprocess.DEVNULL)
        finally:
            target.kill()
    return copy


class Disk(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.copy = copied_disk(DATASET, Path(temporary.name))

    def test_every_file_is_there_byte_for_byte_and_no_other(self) -> None:
        self.assertEqual(files_of(self.copy / "source"), files_of(DATASET))
        self.assertEqual(files_of(self.copy / "f16"), files_of(DATASET))
        for name in files_of(DATASET):
            self.assertEqual((self.copy / "source" / name).read_bytes(), (DATASET / name).read_bytes(), name)

    def test_megatron_reads_its_pair_unchanged(self) -> None:
        ids = np.fromfile(FIXTURES / "data/o200k-u32.bin", np.uint32).astype(np.int32)
        ends = np.flatnonzero(ids == END_OF_TEXT) + 1
        starts = np.concatenate(([0], ends[:-1]))
        for mmap in (True, False):
            dataset = foreign.indexed_dataset.IndexedDataset(str(self.copy / "source" / PAIR), mmap=mmap)
            self.assertEqual((len(dataset), dataset.index.dtype), (len(ends), np.int32))
            self.assertEqual(dataset.document_indices.tolist(), list(range(len(ends) + 1)))
            for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
                self.assertEqual(dataset[number].tobytes(), ids[start:end].tobytes(), number)
            choice = random.Random(SEED)
            for _ in range(100):
                number = choice.randrange(len(ends))
                offset = choice.randrange(ends[number] - starts[number] - SEQUENCE_IDS)
                sample = dataset.get(number, offset, SEQUENCE_IDS)
                first = starts[number] + offset
                self.assertEqual(sample.tobytes(), ids[first : first + SEQUENCE_IDS].tobytes(), (number, offset))

    def test_safetensors_loads_the_weights_unchanged(self) -> None:
        stored = dict(safetensors.deserialize((DATASET / "model.safetensors").read_bytes()))
        with safetensors.safe_open(self.copy / "source/model.safetensors", "np") as opened:
            self.assertEqual(opened.metadata(), {"format": "pt"})
            self.assertEqual(set(opened.keys()), set(stored))
            shapes = {name: opened.get_slice(name).get_shape() for name in opened.keys()}
        loaded = dict(safetensors.deserialize((self.copy / "source/model.safetensors").read_bytes()))
        for name, info in loaded.items():
            self.assertEqual((info["dtype"], list(info["shape"])), ("BF16", shapes[name]), name)
            self.assertEqual(bytes(info["data"]), bytes(stored[name]["data"]), name)
        # The rows that the fixtures have in f32 as well, rounded by another.
        rows = np.fromfile(FIXTURES / "data/weights-f32.bin", np.float32).astype(ml_dtypes.bfloat16).tobytes()
        self.assertEqual(bytes(loaded["encoder.layer.0.intermediate.dense.weight"]["data"])[: len(rows)], rows)

    def test_numpy_loads_the_embeddings(self) -> None:
        stored = np.load(DATASET / "embeddings.npy")
        self.assertEqual((stored.dtype, stored.shape), (np.float32, (512, 384)))
        self.assertLess(np.abs(np.linalg.norm(stored.astype(np.float64), axis=1) - 1).max(), 1e-6)
        self.assertEqual(np.load(self.copy / "source/embeddings.npy", mmap_mode="r").tobytes(), stored.tobytes())
        narrow = np.load(self.copy / "f16/embeddings.npy", mmap_mode="r")
        self.assertEqual((narrow.dtype, narrow.shape), (np.float16, stored.shape))
        self.assertEqual(narrow.tobytes(), stored.astype(np.float16).tobytes())

    def test_the_manifest_says_what_numpy_measures(self) -> None:
        stored = np.load(DATASET / "embeddings.npy").astype(np.float64)
        errors = np.abs(stored.astype(np.float16).astype(np.float64) - stored)
        manifest = json.loads((self.copy / ".xio/manifest.json").read_text())
        (view,) = (view for view in manifest["views"] if view["name"] == "f16")
        (change,) = view["changes"]
        self.assertEqual((change["from"], change["to"], change["source_bytes"]), ("f32", "f16", 4 * stored.size))
        loss = change["loss"]
        self.assertEqual((loss["elements"], loss["saturated"], loss["nans"], loss["infinities"]), (stored.size, 0, 0, 0))
        self.assertEqual(loss["largest_error"], errors.max())
        self.assertAlmostEqual(loss["rms_error"] / np.sqrt((errors**2).mean()), 1, places=9)


def written_shards(out: Path, part: int) -> None:
    """A dataset of several shards, by streaming's own writer: no sample is that of another part."""
    columns = {"any": "ndarray", "fixed": "ndarray:float32:2,3", "label": "int", "text": "str", "typed": "ndarray:float32"}
    values = np.random.default_rng(SEED + part)
    with foreign.MDSWriter(columns=columns, out=str(out), hashes=["sha1", "xxh64"], size_limit=700) as writer:
        for number in range(7):
            arrays = {name: values.standard_normal(shape, np.float32) for name, shape in (("any", (number + 1, 2)), ("fixed", (2, 3)), ("typed", (5 * number + 1,)))}
            writer.write({"label": 100 * part + number, "text": "x" * number, **arrays})


@contextmanager
def left_open() -> Iterator[None]:
    """streaming leaves the indexes that it reads for the collector to close, and Python warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


class MergedShards(unittest.TestCase):
    """Datasets in folders, whose indexes streaming's own `merge_index` made one of, read by its own LocalDataset."""

    PARTS = 3

    @classmethod
    def setUpClass(cls) -> None:
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        folder = Path(temporary.name)
        cls.dataset = folder / "dataset"
        for part in range(cls.PARTS):
            written_shards(cls.dataset / f"part{part}", part)
        with left_open():
            foreign.merge_index(str(cls.dataset))
        cls.copy = copied_disk(cls.dataset, folder)

    def test_the_root_and_its_parts_read_as_their_source(self) -> None:
        for part in (".", *(f"part{number}" for number in range(self.PARTS))):
            with left_open():
                roots = (self.dataset, self.copy / "source", self.copy / "f16")
                stored, exact, narrow = (foreign.LocalDataset(str(root / part)) for root in roots)
            self.assertEqual([len(stored)] * 2, [len(exact), len(narrow)])
            self.assertEqual(len(stored), 7 * self.PARTS if part == "." else 7)
            for number in range(len(stored)):
                theirs = stored[number]
                for view, dtype in ((exact, np.float32), (narrow, np.float16)):
                    ours = view[number]
                    self.assertEqual(ours.keys(), theirs.keys())
                    self.assertEqual((ours["label"], ours["text"]), (theirs["label"], theirs["text"]))
                    for column in ("any", "fixed", "typed"):
                        self.assertEqual((ours[column].dtype, ours[column].shape), (dtype, theirs[column].shape), (number, column))
                        self.assertEqual(ours[column].tobytes(), theirs[column].astype(dtype).tobytes(), (number, column))

    def test_the_root_says_lengths_and_hashes_of_what_is_there(self) -> None:
        for view in ("source", "f16"):
            index = json.loads((self.copy / view / "index.json").read_text())
            self.assertGreater(len(index["shards"]), 2 * self.PARTS)
            for shard in index["shards"]:
                about = shard["raw_data"]
                there = (self.copy / view / about["basename"]).read_bytes()
                self.assertEqual(about["bytes"], len(there))
                self.assertEqual(about["hashes"], {name: foreign.get_hash(name, there) for name in ("sha1", "xxh64")})


class Fixtures(unittest.TestCase):
    """The files of the folder are as their formats' own writers write them."""

    def test_the_pair_is_what_megatron_writes(self) -> None:
        ids = np.fromfile(FIXTURES / "data/o200k-u32.bin", np.uint32).astype(np.int32)
        with tempfile.TemporaryDirectory() as name:
            prefix = Path(name, "pair")
            builder = foreign.indexed_dataset.IndexedDatasetBuilder(f"{prefix}.bin", dtype=np.int32)
            for document in np.split(ids, np.flatnonzero(ids == END_OF_TEXT) + 1)[:-1]:
                builder.add_document(document, [len(document)])
            builder.finalize(f"{prefix}.idx")
            for ending in (".bin", ".idx"):
                self.assertEqual(Path(f"{prefix}{ending}").read_bytes(), Path(f"{DATASET / PAIR}{ending}").read_bytes(), ending)

    def test_the_array_is_what_numpy_writes(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name, "array.npy")
            np.save(path, np.load(DATASET / "embeddings.npy"))
            self.assertEqual(path.read_bytes(), (DATASET / "embeddings.npy").read_bytes())


if __name__ == "__main__":
    unittest.main()
