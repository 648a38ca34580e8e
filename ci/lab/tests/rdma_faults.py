"""What goes wrong between a store and its target over RoCE, as a table: each row is a test, against Linux's target and against ours.

Whatever it is, the target's disk has every byte that was written, the host reads them back, no command passes its deadline, and the kernel logs no error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lab.network.faults import Corrupt, Cut, Delay, Drop, Duplicate, Fault, Reorder
from lab.network.frames import is_roce
from lab.pair import Pair

from .rdma_store import Store
from .report import Report, expect_that

CUT_SECONDS = 3.0
# Longer than queue pairs try and than keep-alive timers wait: both ends give the connection up.
LOST_SECONDS = 15.0
BYTES_BEFORE = 2 << 20
BYTES_AFTER = 1 << 20
# RoCE packets with data, not those that connect.
DATA_BYTES_MIN = 1024


@dataclass(frozen=True)
class FarEnd:
    """What stands in guest b, and how it ends without a word and is there again."""

    name: str
    # What the store opens there.
    url: str
    end: Callable[[], None]


@dataclass(frozen=True)
class Break:
    """Happens in the middle of a write."""

    what: str
    act: Callable[[Pair, FarEnd], None]


def _cut(seconds: float, *ways: str) -> Callable[[Pair, FarEnd], None]:
    def act(pair: Pair, _: FarEnd) -> None:
        with pair.switch.fault(Cut(), *ways):
            time.sleep(seconds)

    return act


# In force while bytes are written and read.
PASSING: Sequence[tuple[str, Fault]] = (
    ("0.1 % of the frames lost", Drop(probability=0.001)),
    ("5 ms delay each way", Delay(delay_ms=5)),
    ("1 % of the frames twice", Duplicate(probability=0.01)),
    ("1 % of the frames overtaken", Reorder(probability=0.01)),
    ("five frames of data with a wrong byte and a right checksum", Corrupt(probability=0.01, count=5)),
)
BREAKS: Sequence[Break] = (
    Break(f"the wire is cut for {CUT_SECONDS:.0f} s", _cut(CUT_SECONDS)),
    Break(f"the wire is cut for {LOST_SECONDS:.0f} s", _cut(LOST_SECONDS)),
    Break(f"half-open for {CUT_SECONDS:.0f} s: the target is not heard", _cut(CUT_SECONDS, "b", "a")),
    Break(f"half-open for {CUT_SECONDS:.0f} s: the store is not heard", _cut(CUT_SECONDS, "a", "b")),
    Break("the target ends without a word and is there again", lambda _, far: far.end()),
)


def test_faults(report: Report, store: Store, far: FarEnd) -> None:
    """Every row of both tables."""
    for what, fault in PASSING:
        with report.test(f"a store over RoCE from {far.name}: {what}"):
            _test_passing(store, far, fault)
    test_breaks(report, store, far)


def test_breaks(report: Report, store: Store, far: FarEnd) -> None:
    """The second table, over whatever leads to the far end."""
    for row in BREAKS:
        transport = "TCP" if "tcp" in far.url else "RoCE"
        with report.test(f"a store over {transport} from {far.name}, in the middle of a write: {row.what}"):
            _test_break(store, far, row)


def _test_passing(store: Store, far: FarEnd, fault: Fault) -> None:
    with store.served(far.url), store.pair.switch.fault(fault, when=is_roce(DATA_BYTES_MIN)) as acting:
        store.expect_transfer()
    expect_that(f"the fault was met: {acting.acted} of {acting.met} frames", acting.acted > 0)
    print(f"        {acting.acted} of {acting.met} frames", flush=True)


def _test_break(store: Store, far: FarEnd, row: Break) -> None:
    with store.served(far.url), ThreadPoolExecutor(1) as pool:
        store.next_part()
        # So that there is a middle.
        with store.pair.switch.fault(Delay(delay_ms=5)):
            writing = pool.submit(store.write)
            store.wait_for_bytes(BYTES_BEFORE)
            row.act(store.pair, far)
            expect_that("the write was not over yet", not writing.done())
            over = time.monotonic()
        store.wait_for_bytes(BYTES_AFTER)
        print(f"        data flow again after {time.monotonic() - over:.1f} s", flush=True)
        writing.result()
        store.expect_on_disk()
