"""MosaicML's writer: a folder of elements as shards. `python -m rivals.sharded SOURCE MADE`."""

from __future__ import annotations

import sys
from pathlib import Path

from . import reader

SHARD_BYTES = 32 << 20
COMPRESSION = "zstd:3"


def main() -> int:
    source, made = map(Path, sys.argv[1:])
    reader.enter_streaming()
    columns = {"elements": "bytes"}
    with reader.foreign.MDSWriter(out=str(made), columns=columns, compression=COMPRESSION, size_limit=SHARD_BYTES) as writer:
        for sample in reader.samples_of(source):
            writer.write({"elements": sample})
    return 0


if __name__ == "__main__":
    sys.exit(main())
