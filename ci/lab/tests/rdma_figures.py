"""What the link between guests a and b carries, by perftest and by a store over it, in one table."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field

from lab.guest import GuestError
from lab.pair import Pair

from .baseline import running_server
from .rdma_store import BLOCK_BYTES, SIZE_BYTES, Store, url
from .report import Report, Unexpected, expect

# Blocks at once.
DEPTHS = (1, 8)

# 64 blocks take a second.
PERFTEST_SECONDS_MAX = 15
PERFTEST_ATTEMPTS_MAX = 3


@dataclass
class Figures:
    """MiB/s in blocks of 128 KiB; a row's figures are one for each of DEPTHS."""

    rows: list[tuple[str, list[float]]] = field(default_factory=list)

    def add_perftest(self, report: Report, pair: Pair) -> None:
        for command, what in (("ib_read_bw", "perftest, RDMA READ"), ("ib_send_bw", "perftest, SEND")):
            with report.test(f"the link's own figures: {command}"):
                self.rows.append((what, [_perftest(pair, command, depth) for depth in DEPTHS]))

    def add_store(self, store: Store, whose: str) -> None:
        """Of what guest b has; a disk that was written before."""
        with store.served(url(store.pair.b.ipv4)):
            self.rows.append((f"our store reads from {whose}", [_read(store, depth) for depth in DEPTHS]))
            self.rows.append((f"our store writes to {whose}", [_write(store, depth) for depth in DEPTHS]))

    def show(self) -> None:
        print(f"        {'MiB/s, 128 KiB':40}" + "".join(f"{f'{depth} at once':>12}" for depth in DEPTHS), flush=True)
        for what, figures in self.rows:
            print(f"        {what:40}" + "".join(f"{figure:12.1f}" for figure in figures), flush=True)


def _perftest(pair: Pair, command: str, depth: int) -> float:
    """perftest waits for ever where it misses a message, which it has done here with no program of ours about: it is asked again."""
    asked = f"timeout -k 1 {PERFTEST_SECONDS_MAX} {command} -R -d rxe0 -s {BLOCK_BYTES} -n 64 -t {depth}"
    for _ in range(PERFTEST_ATTEMPTS_MAX - 1):
        try:
            return _perftest_once(pair, asked)
        except (GuestError, Unexpected) as error:
            print(f"        {command}, {depth} at once, once more: {error}", flush=True)
    return _perftest_once(pair, asked)


def _perftest_once(pair: Pair, asked: str) -> float:
    with running_server(pair.b, asked, 18515):
        printed = pair.a.do(f"{asked} {pair.b.ipv4}")
    figures = re.findall(rf"^ *{BLOCK_BYTES} +64 +[\d.]+ +([\d.]+) ", printed, re.MULTILINE)
    expect("lines of figures", len(figures), 1)
    return float(figures[0])


def _read(store: Store, depth: int) -> float:
    return _rate(store, depth, "if=/dev/nvme0n1 of=/dev/null iflag=direct skip")


def _write(store: Store, depth: int) -> float:
    return _rate(store, depth, "if=/share/data of=/dev/nvme0n1 oflag=direct seek")


def _rate(store: Store, depth: int, way: str) -> float:
    each = SIZE_BYTES // BLOCK_BYTES // depth
    at_once = " ".join(f"dd bs={BLOCK_BYTES} count={each} {way}={number * each} 2>/dev/null &" for number in range(depth))
    started = time.monotonic()
    store.do(f"{at_once} wait")
    return SIZE_BYTES / (time.monotonic() - started) / (1 << 20)
