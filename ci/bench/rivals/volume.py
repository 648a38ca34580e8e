"""How a volume stores its data, from what `xio inspect --json` says of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

# Headers and the like need no line of their own.
SHARE_MIN = 0.01


def frames(stream: dict[str, Any]) -> str:
    """Of a chain with block steps, in bytes of the source."""
    if not stream["frame_elements"]:
        return ""
    size = stream["frame_elements"] * stream["source_bytes"] // stream["elements"]
    return f", frames of {size >> 10} KiB" if size % 1024 == 0 else f", frames of {size} bytes"


def chains(inspected: dict[str, Any]) -> str:
    """The chains of the data, that of most bytes first; the shares where there are several. What else a volume holds (the file system, the manifest) is none of it."""
    data = {(it["sha256"], it["stored_chain"]) for view in inspected["views"] for it in view["manifest"]["streams"]}
    found: Counter[str] = Counter()
    for stream in inspected["streams"]:
        if (stream["sha256"], stream["stored_chain"]) in data:
            found[f"`{stream['stored_chain']}`{frames(stream)}"] += stream["source_bytes"]
    shares = {chain: size / found.total() for chain, size in found.most_common()}
    told = {chain: share for chain, share in shares.items() if share >= SHARE_MIN}
    return "; ".join(f"{chain} ({100 * share:.0f} % of the bytes)" if len(told) > 1 else chain for chain, share in told.items())
