"""What is read, and by whom it is compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from . import contenders, corpora
from .contenders import EROFS, MDS, PLAIN, SQUASHFS, XZ, Contender, converted, ours_as, ours_named

SAMPLES = 1000


@dataclass(frozen=True)
class Sizes:
    tokens_bytes: int
    weight_files: int
    embedding_rows: int


FULL = Sizes(128 << 20, 4, 64 << 10)
QUICK = Sizes(16 << 20, 1, 4 << 10)


@dataclass(frozen=True)
class Corpus:
    name: str
    make: Callable[[Path, Path, Sizes], str]
    """Of an empty folder to work in and one for the files; says what they are."""


@dataclass(frozen=True)
class Scenario:
    name: str
    what: str
    corpus: Corpus
    load: str
    contenders: tuple[Contender, ...]
    readers: int = 1
    samples: int = 0

    def __post_init__(self) -> None:
        if len({contender.name for contender in self.contenders}) < len(self.contenders):
            raise ValueError(f"{self.name}: two contenders have the same name")


TOKENS = Corpus("tokens", lambda work, folder, sizes: corpora.token_shards(work, folder, sizes.tokens_bytes))
WEIGHTS = Corpus("weights", lambda work, folder, sizes: corpora.weight_shards(work, folder, sizes.weight_files))
EMBEDDINGS = Corpus("embeddings", lambda work, folder, sizes: corpora.embeddings(work, folder, sizes.embedding_rows))

AS_U32 = ("--as", "*.bin=u32")
U24 = Contender("numpy, 3 bytes", "ids cut to three bytes by numpy, once; widened by numpy on the host", converted(contenders.as_u24), form="u24")
NPZ = Contender("numpy npz", "`np.savez_compressed` (deflate), once; `np.load` on the host", converted(contenders.as_npz), form="npz")
F16 = Contender("numpy f16", "a copy in f16 by numpy, once", converted(contenders.as_f16))
LOSSLESS = "stored as `xio pack` chooses"


def tokens_as(chain: str, what: str, *options: str) -> Contender:
    return ours_as(chain, what, "*.bin", *AS_U32, *options)


# Chains that a user may name for ids, a line each.
IN_ORDER = (
    tokens_as("bitpack:18", "18 bits an id, no codec"),
    tokens_as("rank+zstd:3", "ranks, zstd"),
)
AT_RANDOM = (
    tokens_as("bitpack:18", "18 bits an id, no codec"),
    tokens_as("rank+zstd:3", "ranks, zstd, in frames of which a sample fetches the fewest bytes", "--frame", "4KiB"),
    tokens_as("rank+zstd-dict:9", "ranks, zstd with a trained dictionary", "--frame", "4KiB"),
)

SCENARIOS = (
    Scenario(
        "tokens in order",
        "A trainer reads all ids, file by file.",
        TOKENS,
        "in order",
        (
            ours_named("auto", LOSSLESS, *AS_U32),
            *IN_ORDER,
            *(PLAIN, U24, EROFS, SQUASHFS, MDS, XZ),
        ),
    ),
    Scenario(
        "tokens at random",
        f"A trainer reads {SAMPLES:,} samples of 4,096 ids, from everywhere, one after another.",
        TOKENS,
        "at random",
        (
            ours_named("auto", f"{LOSSLESS} for samples of 16 KiB", *AS_U32, "--access", "random:16KiB"),
            *AT_RANDOM,
            *(PLAIN, U24, EROFS, SQUASHFS, MDS, XZ),
        ),
        samples=SAMPLES,
    ),
    *(
        Scenario(
            f"weights, {readers} at once" if readers > 1 else "weights",
            f"{readers} servers, each with a mount of its own, load a model at the same time." if readers > 1 else "A server loads a model.",
            WEIGHTS,
            "weights",
            (ours_named("auto", LOSSLESS), PLAIN, NPZ, EROFS, SQUASHFS, XZ),
            readers=readers,
        )
        for readers in (1, 8)
    ),
    Scenario(
        "embeddings as f16",
        "A reader wants f32 vectors in half precision; what is stored keeps every bit of f32, but for the offline copy, which is one more beside it.",
        EMBEDDINGS,
        "embeddings",
        (
            ours_named("auto, presented as f16", LOSSLESS, "--present-as", "f16"),
            F16,
            *(replace(contender, form="f32") for contender in (PLAIN, EROFS, SQUASHFS, XZ)),
        ),
    ),
)
