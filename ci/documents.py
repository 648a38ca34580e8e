"""Checks the documents: relative links lead somewhere, and programs of this repository named in code blocks are there.

Each document is one test.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PROGRAM = re.compile(r"^(?:\$ )?((?:\./)?(?:ci|fixtures|\.ci)/[\w./-]+)", re.MULTILINE)


def faults(document: Path) -> Iterator[str]:
    text = document.read_text(encoding="utf-8")
    prose = _BLOCK.sub("", text)
    for target in _LINK.findall(prose):
        path = target.partition("#")[0]
        if path and "://" not in path and not path.startswith("mailto:") and not (document.parent / path).exists():
            yield f"the link {target} leads nowhere"
    for block in _BLOCK.findall(text):
        for program in _PROGRAM.findall(block):
            if not os.access(REPOSITORY / program, os.X_OK):
                yield f"{program} is not there, or is not executable"


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    documents = [REPOSITORY / name for name in listed.stdout.split("\n") if name]
    failed = 0
    for document in documents:
        found = list(faults(document))
        failed += bool(found)
        for fault in found:
            print(f"FAILED  {document.relative_to(REPOSITORY)}: {fault}")
    print(f"{len(documents) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
