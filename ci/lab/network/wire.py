"""One direction between two ends: takes what is sent, gives it back when it is due. No I/O; the clock is passed in."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from .faults import Chosen, Corrupt, Cut, Delay, Drop, Duplicate, Faults, Rate, Reorder, Rule

# Gives the data with one byte changed, or None where that is not possible.
Corrupter = Callable[[bytes, Corrupt, Random], bytes | None]


@dataclass(order=True)
class _Underway:
    due_s: float
    # Sets the order of those that are due at one time.
    number: int
    data: bytes = field(compare=False)
    # Others that must pass first; 0 for all that were not chosen by Reorder.
    behind: int = field(compare=False, default=0)
    passed: bool = field(compare=False, default=False)


class Wire:
    """From `source` to `destination`. `lossy`: frames, which a cut or a full queue loses; else a stream, which waits."""

    def __init__(self, faults: Faults, source: str, destination: str, *, lossy: bool, corrupt: Corrupter) -> None:
        self.way = (source, destination)
        # Bytes that have been put and not yet taken.
        self.waiting_bytes = 0
        self._faults = faults
        self._lossy = lossy
        self._corrupt = corrupt
        self._queue: list[_Underway] = []
        self._held: list[_Underway] = []
        self._number = 0
        self._last_due_s = 0.0
        self._random: dict[Rule, Random] = {}
        self._free_s: dict[Rule, float] = {}

    def put(self, data: bytes, now_s: float) -> None:
        due_s, copies, behind = now_s, 1, None
        for rule in self._faults.rules:
            if self.way not in rule.ways or (rule.when and not rule.when(data)):
                continue
            rule.met += 1
            match rule.fault:
                case Cut():
                    rule.acted += 1
                    if self._lossy:
                        return
                case Rate():
                    until_s = self._book(rule, rule.fault, len(data) * copies, due_s)
                    if until_s is None:
                        return
                    due_s = until_s
                case Chosen() as fault if self._chosen(rule, fault):
                    rule.acted += 1
                    match fault:
                        case Drop():
                            return
                        case Duplicate():
                            copies += 1
                        case Corrupt():
                            if changed := self._corrupt(data, fault, self._random_of(rule)):
                                data = changed
                            else:
                                rule.acted -= 1
                        case Delay():
                            due_s += (fault.delay_ms + fault.jitter_ms * self._random_of(rule).random()) / 1000
                        case Reorder():
                            behind = fault
        for _ in range(copies):
            self._enqueue(data, due_s, behind)

    def take(self, now_s: float) -> list[bytes]:
        """All that is due, in order."""
        taken = []
        while not self.is_held() and self._queue and self._queue[0].due_s <= now_s:
            underway = heapq.heappop(self._queue)
            if not underway.passed:
                taken += [self._pass(underway), *self._overtaken(underway.number)]
        return taken

    def due_s(self) -> float | None:
        """When `take` has something next."""
        while self._queue and self._queue[0].passed:
            heapq.heappop(self._queue)
        return self._queue[0].due_s if self._queue and not self.is_held() else None

    def is_held(self) -> bool:
        """Whether a cut keeps a stream's bytes, and its end, from arriving."""
        return not self._lossy and any(isinstance(rule.fault, Cut) and self.way in rule.ways for rule in self._faults.rules)

    def _chosen(self, rule: Rule, fault: Chosen) -> bool:
        if fault.count is not None and rule.acted >= fault.count:
            return False
        # Asked for certain ones too, or their number would shift the choices of a rule with another probability.
        return self._random_of(rule).random() < fault.probability

    def _random_of(self, rule: Rule) -> Random:
        """Each direction has choices of its own: how the two interleave is not for the seed to say."""
        if rule not in self._random:
            self._random[rule] = Random(f"{self._faults.seed} {rule.number} {self.way}")
        return self._random[rule]

    def _book(self, rule: Rule, rate: Rate, length: int, now_s: float) -> float | None:
        """When the token bucket lets so many bytes pass; None where the queue before it is full."""
        burst_s = rate.burst_bytes / rate.bytes_per_s
        free_s = max(self._free_s.get(rule, 0.0), now_s - burst_s)
        if self._lossy and (free_s - now_s) * rate.bytes_per_s > rate.queue_bytes_max:
            rule.overflowed += 1
            return None
        self._free_s[rule] = free_s + length / rate.bytes_per_s
        rule.acted += self._free_s[rule] > now_s
        return max(now_s, self._free_s[rule])

    def _enqueue(self, data: bytes, due_s: float, reorder: Reorder | None) -> None:
        # What is sent later is due no sooner, also where a delay has been lifted meanwhile.
        due_s = self._last_due_s = max(due_s, self._last_due_s)
        self._number += 1
        self.waiting_bytes += len(data)
        underway = _Underway(due_s, self._number, data)
        if reorder:
            underway.due_s += reorder.held_ms_max / 1000
            underway.behind = reorder.behind
            self._held.append(underway)
        heapq.heappush(self._queue, underway)

    def _overtaken(self, number: int) -> list[bytes]:
        """This one has passed: those that it was the last to overtake pass right behind it."""
        ready = []
        for underway in self._held:
            underway.behind -= underway.number < number
            if underway.behind == 0:
                ready.append(underway)
        return [self._pass(underway) for underway in ready]

    def _pass(self, underway: _Underway) -> bytes:
        underway.passed = True
        self.waiting_bytes -= len(underway.data)
        self._held = [other for other in self._held if other is not underway]
        return underway.data
