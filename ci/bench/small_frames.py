"""What a random sample of token ids makes a cold reader fetch, and what else was tried for small frames: two parts of `ci/bench/codecs`.

Stored bytes of a sample are counted exactly: for every place that it can begin at, the blocks of 4 KiB in which its frames lie, and the blocks of the table (docs/format.md) in which the entries of these
frames, or the checksums, lie. (Other programs' frames need an index, too.) Nothing is estimated from ratios.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

BLOCK_BYTES = 4096
FRAME_KIB = (4, 8, 16, 32, 64)
SAMPLE_TOKENS = (2048, 4096, 8192)
# Entries in a block of a table: frames of 40 bytes, checksums of 4 (one for each 4 KiB of what has no frames). Others have an index of offsets, of 8 bytes each.
FRAMES_PER_BLOCK, CHECKSUMS_PER_BLOCK, OFFSETS_PER_BLOCK = 4032 // 40, 4032 // 4, 4096 // 8
# Of a corpus every other piece of so many ids is what other codes are tried on.
PIECE_IDS = 16384


@dataclass
class Stored:
    """A corpus, stored in frames; without frames where `frame_ids` is 0."""

    name: str
    is_ours: bool
    frame_ids: int
    # Of each frame.
    frame_bytes: list[int]
    decode: float
    # Of an element, where there are no frames.
    bits: float = 0.0

    def per_sample(self, ids: int, sample: int) -> tuple[int, int]:
        """Payload and table bytes that a sample makes a reader fetch, on average over every id that it can begin at."""
        import numpy as np  # type: ignore[import-not-found]

        start = np.arange(ids - sample + 1, dtype=np.int64)
        tables = np.zeros(1)
        if self.frame_ids:
            offsets = np.concatenate([[0], np.cumsum(self.frame_bytes)])
            first, last = start // self.frame_ids, (start + sample - 1) // self.frame_ids
            begin, end = offsets[first], offsets[last + 1]
            per_block = FRAMES_PER_BLOCK if self.is_ours else OFFSETS_PER_BLOCK
            tables = last // per_block - first // per_block + 1
        else:
            begin, end = (start * self.bits / 8).astype(np.int64), np.ceil((start + sample) * self.bits / 8).astype(np.int64)
            first, last = begin // BLOCK_BYTES, (end - 1) // BLOCK_BYTES
            # A plain file has nothing beside it.
            if self.is_ours:
                tables = last // CHECKSUMS_PER_BLOCK - first // CHECKSUMS_PER_BLOCK + 1
        blocks = (end - 1) // BLOCK_BYTES - begin // BLOCK_BYTES + 1
        return round(float(blocks.mean()) * BLOCK_BYTES), round(float(tables.mean()) * BLOCK_BYTES)


def samples(ids: int, stored: Iterable[Stored], rank_table_bytes: int, dictionary_bytes: int) -> str:
    """For each way to store, its best frame for each length of sample; the smallest of all first."""
    by_name: dict[str, list[Stored]] = {}
    for it in stored:
        by_name.setdefault(it.name, []).append(it)
    rows = []
    for name, frames in by_name.items():
        cells, order = [], 0
        for sample in SAMPLE_TOKENS:
            (payload, table), best = min(((it.per_sample(ids, sample), it) for it in frames), key=lambda found: sum(found[0]))
            frame = f" ({best.frame_ids * 4 >> 10})" if best.frame_ids else ""
            cells += [payload + table, payload, frame]
            if sample == SAMPLE_TOKENS[1]:
                order = payload + table
                decode = (sample + max(best.frame_ids - 1, 0)) * 4 / best.decode / 1e3 if best.is_ours else 0.0
        rows.append((order, name, cells, decode))
    least = [min(row[2][3 * at] for row in rows) for at in range(len(SAMPLE_TOKENS))]
    titles = [f"{sample >> 10}K cold | tables held" for sample in SAMPLE_TOKENS]
    lines = [f"| what | {' | '.join(titles)} | decode, µs |", f"|---|{'---|' * (2 * len(SAMPLE_TOKENS) + 1)}"]
    for _, name, cells, decode in sorted(rows):
        shown = []
        for at in range(len(SAMPLE_TOKENS)):
            cold, held, frame = cells[3 * at : 3 * at + 3]
            mark = "**" if cold == least[at] else ""
            shown.append(f"{mark}{cold:,}{mark}{frame} | {held:,}")
        lines.append(f"| {name} | {' | '.join(shown)} | {f'{decode:.1f}' if decode else ''} |")
    once = f"A reader of `rank` fetches its table besides, once when it opens the volume: here {rank_table_bytes:,} bytes; and one of `zstd-dict` its dictionary, {dictionary_bytes:,}."
    return "\n".join(lines) + f"\n\n{once}\n"


# --- what else was tried ----------------------------------------------------------------------------------------------------------------


def code_lengths(ranks: Any, stoppers: int) -> Any:
    import numpy as np

    more = 256 - stoppers
    return np.where(ranks < stoppers, 1, np.where(ranks < stoppers + more * stoppers, 2, 3))


def rank_codes(ids: Any) -> tuple[Any, Any]:
    """The bytes that `rank` makes of ids if it ranks them by every count, not by octaves, and where each id's begin (docs/transforms.md, *Rank*)."""
    import numpy as np

    known, counts = np.unique(ids, return_counts=True)
    order = known[np.lexsort((known, -counts))]
    places = np.zeros(int(known[-1]) + 1, np.int64)
    places[order] = np.arange(len(order))
    ranks = places[ids]
    totals = {stoppers: int(code_lengths(ranks, stoppers).sum()) for stoppers in range(129, 256)}
    stoppers = max(it for it, total in totals.items() if total <= min(totals.values()) * (1 + 1 / 256))
    more, lengths = 256 - stoppers, code_lengths(ranks, stoppers)
    second = np.where(ranks < stoppers, 0, (ranks - stoppers) // more)
    third = np.where(second < stoppers, 0, (second - stoppers) // more)
    at = np.concatenate([[0], np.cumsum(lengths)])
    codes = np.zeros(at[-1], np.uint8)
    codes[at[:-1]] = np.where(lengths == 1, ranks, stoppers + (ranks - stoppers) % more)
    codes[at[:-1][lengths > 1] + 1] = np.where(lengths == 2, second, stoppers + (second - stoppers) % more)[lengths > 1]
    codes[at[:-1][lengths > 2] + 2] = third[lengths > 2]
    return codes, at


def entropy_bits(symbols: Any) -> float:
    """Of all of them together, with a table that knows their shares and costs nothing."""
    import numpy as np

    counts = np.unique(symbols, return_counts=True)[1]
    return float(-(counts * np.log2(counts / len(symbols))).sum())


def best_seconds(work: Callable[[], Any], rounds: int = 5) -> float:
    taken = math.inf
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        taken = min(taken, time.perf_counter() - begun)
    return taken


def tried(ids: Any, huffman: Callable[[Any, int], tuple[int, float]]) -> str:
    """Codes of `rank` behind zstd, behind one prefix code a frame (`huffman`: of symbols in frames of so many, bytes and GB/s of symbols), and in a static code."""
    import numpy as np
    import zstandard  # type: ignore[import-not-found]

    codes, at = rank_codes(ids)
    leads = np.zeros(len(codes), bool)
    leads[at[:-1]] = True
    each = 1 / len(ids)
    planes = sum(entropy_bits(ids >> shift & 255) for shift in (0, 8, 16)) * each
    static = (entropy_bits(codes[leads]) + entropy_bits(codes[~leads])) * each
    lines = [
        f"Static codes of order 0, whatever the frame (a bound; a table that costs nothing): {entropy_bits(ids) * each:.2f} bits an id for whole ids, {static:.2f} for the bytes of `rank` with one table for bytes that begin a code and"
        f" one for the others, {entropy_bits(codes) * each:.2f} with one for all, {planes:.2f} for byte planes of the ids.",
        "",
        "| frame | zstd -3 | zstd -9 | zstd -19 | a prefix code a frame |",
        "|---|---|---|---|---|",
    ]
    pieces = range(PIECE_IDS, len(ids) - PIECE_IDS + 1, 2 * PIECE_IDS)
    for kib in (1, 2, 4, 8, 16, 64):
        frame = kib << 8
        trial = [codes[at[i] : at[i + frame]].tobytes() for piece in pieces for i in range(piece, piece + PIECE_IDS, frame)]
        count = len(trial) * frame
        cells = [f"{kib} KiB"]
        for level in (3, 9, 19):
            writer, reader = zstandard.ZstdCompressor(level=level), zstandard.ZstdDecompressor()
            stored = [writer.compress(it) for it in trial]
            assert [reader.decompress(it) for it in stored] == trial
            bits = sum(min(len(it), len(whole)) for it, whole in zip(stored, trial, strict=True)) * 8 / count
            seconds = best_seconds(lambda: [reader.decompress(it) for it in stored])
            cells.append(f"{bits:.2f}, {count * 4 / seconds / 1e9:.1f} GB/s")
        symbols = round(frame * len(codes) / len(ids))
        stored_bytes, rate = huffman(codes, symbols)
        cells.append(f"{stored_bytes * 8 * each:.2f}, {rate * 4 * len(ids) / len(codes):.1f} GB/s")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
