"""Finds the Debian mirror that this machine already uses.

No host name is written here. The mirror is the one in the machine's own apt sources, or XIO_DEBIAN_MIRROR.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

# The exit status of a program that ends with NoMirror: the stage is skipped, which CI counts as failed.
CANNOT_INSTALL_HERE = 77


class NoMirror(Exception):
    """This machine names no Debian mirror; the message says what to set."""


@dataclass(frozen=True)
class Source:
    """One archive that apt knows: where it is, and what is asked of it."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]


def find_mirror(etc: Path = Path("/etc")) -> str:
    """The address of a Debian archive: XIO_DEBIAN_MIRROR, else the archive of this machine's own release."""
    if chosen := os.environ.get("XIO_DEBIAN_MIRROR"):
        return chosen
    release = _os_release(etc / "os-release")
    if release.get("ID") == "debian":
        codename = release.get("VERSION_CODENAME", "")
        for source in apt_sources(etc / "apt"):
            if codename in source.suites and "main" in source.components:
                return source.uri
    raise NoMirror(
        f"no Debian archive among this machine's apt sources ({etc}/apt); "
        "set XIO_DEBIAN_MIRROR to one that carries trixie and trixie-backports"
    )


def apt_sources(apt: Path) -> Iterator[Source]:
    """Every binary source in sources.list and sources.list.d, in both of apt's formats."""
    parts = apt / "sources.list.d"
    for path in [apt / "sources.list", *sorted(parts.glob("*.list"))]:
        if path.is_file():
            yield from _one_line_sources(path.read_text(encoding="utf-8"))
    for path in sorted(parts.glob("*.sources")):
        yield from _deb822_sources(path.read_text(encoding="utf-8"))


def _one_line_sources(text: str) -> Iterator[Source]:
    for line in text.splitlines():
        if match := re.match(r"deb\s+(?:\[[^\]]*\]\s*)?(\S+)\s+(\S+)\s*([^#]*)", line.strip()):
            uri, suite, components = match.groups()
            yield Source(uri, (suite,), tuple(components.split()))


def _deb822_sources(text: str) -> Iterator[Source]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for stanza in re.split(r"\n\s*\n", "\n".join(lines)):
        fields = {
            name.strip().lower(): value.split()
            for name, colon, value in (line.partition(":") for line in stanza.splitlines())
            if colon and not name.startswith((" ", "\t"))
        }
        if "deb" in fields.get("types", []) and fields.get("enabled", ["yes"]) != ["no"]:
            for uri in fields.get("uris", []):
                yield Source(uri, tuple(fields.get("suites", [])), tuple(fields.get("components", [])))


def _os_release(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return {key: value.strip('"') for key, equals, value in (line.partition("=") for line in lines) if equals}
