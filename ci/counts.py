"""Reads how many tests passed and failed out of what a test program printed."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LIBTEST = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed;", re.MULTILINE)
# A run that was cut short says "10/12 tests run"; those that did not run are failures as well.
_NEXTEST = re.compile(r"^ *Summary \[[^\]]*\] +(?:\d+/)?(\d+) tests? run: (\d+) passed", re.MULTILINE)
_PLAIN = re.compile(r"^(\d+) passed, (\d+) failed$", re.MULTILINE)
_UNITTEST = re.compile(r"^Ran (\d+) tests? in [^\n]*\n\n(?:OK|FAILED \(([^)]*)\))", re.MULTILINE)


@dataclass(frozen=True)
class Counts:
    passed: int
    failed: int

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed)


def count_tests(printed: str) -> Counts | None:
    """The sum over all summaries in `printed`: cargo test, cargo nextest, unittest, 'N passed, N failed'. None without any."""
    found = [Counts(int(passed), int(failed)) for passed, failed in _LIBTEST.findall(printed) + _PLAIN.findall(printed)]
    found += [Counts(int(passed), int(run) - int(passed)) for run, passed in _NEXTEST.findall(printed)]
    for run, faults in _UNITTEST.findall(printed):
        failed = sum(int(number) for number in re.findall(r"(?:failures|errors)=(\d+)", faults))
        found.append(Counts(int(run) - failed, failed))
    return sum(found, Counts(0, 0)) if found else None


def stage_counts(printed: str, status: int) -> Counts:
    """What a stage counts for. One without tests of its own counts as one; a failed one never counts as passed."""
    counts = count_tests(printed)
    if counts is None:
        return Counts(1, 0) if status == 0 else Counts(0, 1)
    if status != 0 and counts.failed == 0:
        return counts + Counts(0, 1)
    return counts
