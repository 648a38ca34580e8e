"""Model views in transformers. Run by ci/formats/transformers, in an environment that has torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import torch
import transformers

VIEW = os.environ["XIO_VIEW"]


def saved_model(folder: Path) -> transformers.LlamaForCausalLM:
    """A model of f32 in several shards, laid out as a hub's cache: a snapshot's names are symlinks to blobs."""
    torch.manual_seed(20261121)
    sizes = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, dtype=torch.float32))
    model.save_pretrained(folder / "saved", max_shard_size="100KB")
    (folder / "blobs").mkdir()
    (folder / "snapshots/0123").mkdir(parents=True)
    for number, path in enumerate(sorted((folder / "saved").iterdir())):
        shutil.move(path, folder / f"blobs/{number}")
        (folder / "snapshots/0123" / path.name).symlink_to(f"../../blobs/{number}")
    return model


class Hub(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.model = saved_model(self.folder)

    def loaded(self, rules: str) -> transformers.PreTrainedModel:
        view = self.folder / "view"
        subprocess.run([VIEW, self.folder / "snapshots/0123", rules, "4096", view], check=True)
        self.assertGreater(len(list(view.glob("*.safetensors"))), 2)
        return transformers.AutoModelForCausalLM.from_pretrained(view, dtype="auto")

    def compare(self, rules: str, dtype: torch.dtype) -> None:
        loaded = self.loaded(rules)
        self.assertEqual(loaded.dtype, dtype)
        stored, presented = self.model.state_dict(), loaded.state_dict()
        self.assertEqual(set(presented), set(stored))
        for name, values in stored.items():
            self.assertTrue(torch.equal(presented[name], values.to(dtype)), name)

    def test_bf16(self) -> None:
        self.compare("bf16", torch.bfloat16)

    def test_f16(self) -> None:
        self.compare("f16", torch.float16)

    def test_exact(self) -> None:
        self.compare("keep", torch.float32)

    def test_norms_kept_in_f32(self) -> None:
        # dtype="auto" makes one type of all: norms are rounded by transformers then, and are the same as if the view had.
        self.compare("*norm*=keep,bf16", torch.bfloat16)


if __name__ == "__main__":
    unittest.main()
