"""Named tests: each prints one line as it ends, and the last line counts them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lab.guest import GuestError


class Unexpected(Exception):
    """A test saw something other than what it states."""


def expect(what: str, actual: object, wanted: object) -> None:
    """Both are shown where they differ."""
    if actual != wanted:
        raise Unexpected(f"{what} is {actual!r}, wanted {wanted!r}")


def expect_that(statement: str, holds: bool) -> None:
    if not holds:
        raise Unexpected(f"not so: {statement}")


def wait_for(what: str, holds: Callable[[], bool], seconds_max: float) -> None:
    """Asks again until it holds."""
    until = time.monotonic() + seconds_max
    while not holds():
        if time.monotonic() > until:
            raise Unexpected(f"after {seconds_max:.0f} s still not so: {what}")
        time.sleep(0.1)


class Report:
    """Counts tests. A failed test does not stop those after it. One in `exempt` may fail: it does not apply to the target."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0
        self.exempt: frozenset[str] = frozenset()

    @contextmanager
    def test(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        error: Exception | None = None
        try:
            yield
        except (Unexpected, GuestError, OSError, ValueError, LookupError) as caught:
            error = caught
        seconds = f"{time.monotonic() - started:.1f} s"
        if error is None:
            self.passed += 1
            print(f"ok      {name} ({seconds})", flush=True)
        elif name in self.exempt:
            print(f"exempt  {name} ({seconds}): {error}", flush=True)
        else:
            self.failed += 1
            kind = "" if isinstance(error, Unexpected | GuestError) else f"{type(error).__name__}: "
            print(f"FAILED  {name} ({seconds}): {kind}{error}", flush=True)

    def abort(self, why: str) -> None:
        """The tests cannot go on: one more failure, whatever they would have shown."""
        self.failed += 1
        print(f"FAILED  the tests cannot go on: {why}", flush=True)
