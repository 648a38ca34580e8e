"""One test's outcome, read from what blktests prints of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .expected import ANSWERED, CHANGED, KNOWN_FAILURES

RESULTS = ("passed", "failed", "known", "not run", "not usable")


@dataclass(frozen=True)
class Test:
    number: str
    description: str


@dataclass(frozen=True)
class Outcome:
    test: Test
    # One of RESULTS.
    result: str
    seconds: float
    reason: str
    # All that blktests said, and the target's last lines where the test failed.
    output: str = ""


def read_outcome(test: Test, said: str, seconds: float) -> Outcome:
    """What blktests says of a test is a line that ends with its result, and indented lines below it. `seconds` is for one that says no time."""
    result, reasons = "", []
    for line in said.partition("\n--- ")[0].splitlines():
        if took := re.fullmatch(r"runtime.*?([0-9.]+)s", line.strip()):
            seconds = float(took[1])
        elif ending := re.search(r"\[(passed|failed|not run)\]$", line):
            result, reasons = ending[1], []
        elif line.startswith("    "):
            reasons.append(line.strip())
    if not result:
        return Outcome(test, "failed", seconds, "it did not end", said)
    return judged(Outcome(test, result, seconds, "; ".join(reasons) if result == "not run" else "", said))


def judged(outcome: Outcome) -> Outcome:
    """The outcome in the light of what is known of the test."""
    number = outcome.test.number
    known = KNOWN_FAILURES.get(number)
    if outcome.result == "failed" and known:
        return replace(outcome, result="known", reason=known)
    if outcome.result == "passed" and known:
        return replace(outcome, result="failed", reason=f"it passes, and expected.py says that it fails: {known}")
    if outcome.result == "passed" and number in CHANGED:
        return replace(outcome, reason=CHANGED[number][1])
    if outcome.result == "passed" and number in ANSWERED:
        return replace(outcome, reason=f"answered: {ANSWERED[number]}")
    return outcome


def markdown(outcomes: list[Outcome]) -> str:
    """The outcomes as a table of docs/blktests.md."""
    rows = []
    for of in outcomes:
        seconds = f"{of.seconds:.0f}" if of.result in ("passed", "failed", "known") else ""
        rows.append(f"| {of.test.number} | {of.test.description} | {of.result} | {seconds} | {of.reason.replace('|', '/')} |")
    return "\n".join(["| test | what it does | result | seconds | why |", "|---|---|---|---:|---|", *rows]) + "\n"
