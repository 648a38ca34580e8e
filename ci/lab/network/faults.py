"""What can go wrong on the way from one end to another, as a test asks for it at run time.

The same words serve Ethernet frames (switch.py) and the pieces of a TCP stream (proxy.py); each says which of them it takes.
A fault in one direction alone makes a half-open connection: Cut() from "a" to "b".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType


@dataclass(frozen=True)
class Fault:
    """One of the kinds below."""


@dataclass(frozen=True)
class Cut(Fault):
    """Nothing passes. Frames are lost; a stream's bytes, and its end, wait until the fault is lifted, as TCP would send them again."""


@dataclass(frozen=True, kw_only=True)
class Chosen(Fault):
    """Acts on each that it meets with `probability`, and no more than `count` times. Which ones follows from the seed."""

    probability: float = 1.0
    count: int | None = None


@dataclass(frozen=True, kw_only=True)
class Drop(Chosen):
    """Lost."""


@dataclass(frozen=True, kw_only=True)
class Duplicate(Chosen):
    """Passes twice, one right behind the other."""


@dataclass(frozen=True, kw_only=True)
class Corrupt(Chosen):
    """One byte is another: the one at `offset` (of a frame's UDP or TCP payload, of a stream's piece), else any.

    What is too short for `offset` passes as it is. With `repair` a frame's UDP or TCP checksum is made right again, so that it reaches
    what has checks of its own: RoCE's ICRC, NVMe's digests.
    """

    offset: int | None = None
    repair: bool = True


@dataclass(frozen=True, kw_only=True)
class Reorder(Chosen):
    """Passes once `behind` others have overtaken it, or after `held_ms_max`: the last of a burst would wait for ever."""

    behind: int = 1
    held_ms_max: float = 200.0


@dataclass(frozen=True, kw_only=True)
class Delay(Chosen):
    """Arrives later, by up to `jitter_ms` more. The order stays: only Reorder changes it."""

    delay_ms: float
    jitter_ms: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Rate(Fault):
    """A token bucket. Frames that would wait behind more than `queue_bytes_max` are lost; a stream's sender is held up instead."""

    bytes_per_s: float
    burst_bytes: int = 16 << 10
    queue_bytes_max: int = 256 << 10


@dataclass(eq=False)
class Rule:
    """A fault in force. Ends when it is lifted, or with its `with` block; what is under way then still arrives as it was to."""

    fault: Fault
    # Sets its random choices apart from those of other rules.
    number: int
    ways: frozenset[tuple[str, str]]
    when: Callable[[bytes], bool] | None
    changed: Callable[[Rule], None]
    # How many met it on its ways, `when` considered, and how many of them it has acted on. For Rate: those that had to wait.
    met: int = 0
    acted: int = 0
    # What a full queue of Rate has cost.
    overflowed: int = 0
    lifted: bool = False

    def lift(self) -> None:
        self.lifted = True
        self.changed(self)

    def __enter__(self) -> Rule:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.lift()


class Faults:
    """The rules in force between some ends, in the order in which they were set, which is the order in which they act.

    Set and lifted by the test's thread, read by the network's: the list is replaced, never changed.
    """

    def __init__(self, ends: tuple[str, ...], kinds: tuple[type[Fault], ...], seed: int, changed: Callable[[], None] = lambda: None) -> None:
        self.seed = seed
        self.rules: tuple[Rule, ...] = ()
        self._ends = ends
        self._kinds = kinds
        self._number = 0
        self._changed = changed

    def add(
        self,
        fault: Fault,
        source: str | None = None,
        destination: str | None = None,
        *,
        both: bool = False,
        when: Callable[[bytes], bool] | None = None,
    ) -> Rule:
        """From `source` (None: every end) to `destination` (None: every end); `both`: and the way back."""
        if not isinstance(fault, self._kinds):
            raise ValueError(f"{fault} is no fault of this network: it has {', '.join(kind.__name__ for kind in self._kinds)}")
        for end in (source, destination):
            if end is not None and end not in self._ends:
                raise ValueError(f"there is no end {end!r}: there are {', '.join(self._ends)}")
        ways = {(a, b) for a in self._ends for b in self._ends if a != b and source in (None, a) and destination in (None, b)}
        if both:
            ways |= {(b, a) for a, b in ways}
        self._number += 1
        rule = Rule(fault, self._number, frozenset(ways), when, self._remove)
        self.rules = (*self.rules, rule)
        self._changed()
        return rule

    def _remove(self, rule: Rule) -> None:
        self.rules = tuple(other for other in self.rules if other is not rule)
        self._changed()
