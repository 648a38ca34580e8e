"""Tables and the plot of docs/comparison.md."""

from __future__ import annotations

import datetime
import os
import statistics
from dataclasses import dataclass
from pathlib import Path

from .scenarios import SCENARIOS, Scenario

BEGIN, END = "<!-- made by ci/bench/comparison -->", "<!-- end of what ci/bench/comparison made -->"
PLAIN = "plain files"
MB = 1_000_000


@dataclass(frozen=True)
class Row:
    """A contender in a scenario behind a link: medians of its rounds."""

    scenario: str
    link_mb: int
    contender: str
    seconds: list[float]
    store_bytes: float
    wire_bytes: float
    delivered_bytes: float
    host_cpu_seconds: float
    target_cpu_seconds: float
    capacity_bytes: int
    preparation_seconds: float
    chains: str

    @property
    def is_ours(self) -> bool:
        return self.contender.startswith("xio")


HEADINGS = ["link", "contender", "seconds", "from, to", "plain / this", "store MB", "wire MB", "delivered MB", "host CPU s", "target CPU s", "capacity MB", "preparation s"]


def against_plain(row: Row, rows: list[Row]) -> str:
    """The median of each round's ratio: above 1 this is faster than plain files."""
    for other in rows:
        if (other.scenario, other.link_mb, other.contender) == (row.scenario, row.link_mb, PLAIN):
            return f"{statistics.median(theirs / mine for theirs, mine in zip(other.seconds, row.seconds)):.2f}"
    return ""


def cells(row: Row, rows: list[Row]) -> list[str]:
    return [
        f"{row.link_mb} MB/s",
        bold(row.contender),
        f"{statistics.median(row.seconds):.2f}",
        f"{min(row.seconds):.2f} to {max(row.seconds):.2f}" if len(row.seconds) > 1 else "once",
        against_plain(row, rows),
        *(f"{number / MB:.1f}" for number in (row.store_bytes, row.wire_bytes, row.delivered_bytes)),
        f"{row.host_cpu_seconds:.2f}",
        f"{row.target_cpu_seconds:.2f}",
        f"{row.capacity_bytes / MB:.1f}",
        f"{row.preparation_seconds:.1f}",
    ]


def table(rows: list[Row]) -> str:
    """The fastest first."""
    ordered = sorted(rows, key=lambda row: (row.link_mb, statistics.median(row.seconds)))
    lines = [HEADINGS, ["---"] * 2 + ["---:"] * (len(HEADINGS) - 2), *(cells(row, rows) for row in ordered)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def bold(name: str) -> str:
    """Ours stand out."""
    return f"**{name}**" if name.startswith("xio") else name


def who(scenario: Scenario, rows: list[Row]) -> str:
    """A line for each contender that was measured: what it is, and for ours how the volume says that it is stored."""
    chains = {row.contender: row.chains for row in rows if row.scenario == scenario.name}
    named = ((it, chains[it.name]) for it in scenario.contenders if it.name in chains)
    return "".join(f"* {bold(it.name)}: {it.what}{': ' * bool(told)}{told}\n" for it, told in named)


def plot(rows: list[Row]) -> str:
    """Bars of the seconds behind the slower link, by scenario; each scenario's as shares of plain files'."""
    slow = [row for row in rows if row.link_mb == min(it.link_mb for it in rows)]
    bar, left, width, top = 16, 170, 640, 40
    most = 3.0
    parts, y = [], top
    for scenario in dict.fromkeys(row.scenario for row in slow):
        of_it = sorted((row for row in slow if row.scenario == scenario), key=lambda row: statistics.median(row.seconds))
        base = next((statistics.median(row.seconds) for row in of_it if row.contender == PLAIN), 0.0)
        parts.append(f'<text x="8" y="{y + 12}" font-weight="bold">{scenario}</text>')
        y += bar + 4
        for row in of_it:
            seconds = statistics.median(row.seconds)
            share = seconds / base if base else 0.0
            length = width * min(share, most) / most
            parts.append(f'<text x="{left - 6}" y="{y + 12}" text-anchor="end">{row.contender}</text>')
            parts.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{bar - 3}" fill="{"#2b6cb0" if row.is_ours else "#9aa5b1"}"/>')
            more = "" if share <= most else " (cut off)"
            parts.append(f'<text x="{left + length + 4:.1f}" y="{y + 12}">{seconds:.2f} s{more}</text>')
            y += bar
        y += 12
    line = left + width / most
    parts.append(f'<line x1="{line:.1f}" x2="{line:.1f}" y1="{top}" y2="{y}" stroke="#c53030" stroke-dasharray="4 3"/>')
    title = f"Seconds behind a link of {slow[0].link_mb} MB/s, as shares of plain files' (dashed); ours in blue, shorter is better"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 110} {y + 10}" font-family="sans-serif" font-size="11">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n<text x="8" y="20" font-size="13">{title}</text>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'a processor without a name'}, {len(os.sched_getaffinity(0))} processors"


def document(docs: Path, rows: list[Row], origins: dict[str, str], rounds: int, seconds: float) -> None:
    page = docs / "comparison.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, behind = rest.partition(END)
    load = os.getloadavg()[2]
    parts = [
        f"`ci/bench/comparison --document`, {datetime.date.today()}, {processor()}, load {load:.1f}; {rounds} rounds, {seconds / 60:.0f} minutes.\n",
        "![Seconds behind the slower link](comparison.svg)\n",
    ]
    for scenario in (scenario for scenario in SCENARIOS if scenario.name in origins):
        parts += [f"### {scenario.name.capitalize()}\n", f"{scenario.what} {origins[scenario.name]}.\n"]
        parts.append(who(scenario, rows))
        parts.append(table([row for row in rows if row.scenario == scenario.name]))
    page.write_text(f"{before}{BEGIN}\n" + "\n".join(parts) + f"{END}{behind}", encoding="utf-8")
    (docs / "comparison.svg").write_text(plot(rows), encoding="utf-8")
