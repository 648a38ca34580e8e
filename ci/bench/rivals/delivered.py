"""What a reader had, kept until the clock stands, and its digest."""

from __future__ import annotations

import hashlib
import mmap

# Of one reader; eight at once are the most that there are.
DELIVERED_BYTES_MAX = 256 << 20


class Delivered:
    """The elements in the order in which they came, in memory that is there before the first of them: no page of it is taken while the clock runs, and no byte is looked at."""

    def __init__(self, bytes_max: int) -> None:
        if bytes_max > DELIVERED_BYTES_MAX:
            raise ValueError(f"{bytes_max} bytes for a reader to keep, at most {DELIVERED_BYTES_MAX}")
        self.bytes = 0
        self._bytes_max = bytes_max
        self._parts: list[memoryview] = []
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        self._memory = memoryview(mmap.mmap(-1, max(bytes_max, 1), flags=flags))
        self._used = 0

    def room(self, size: int) -> memoryview:
        """Where the next `size` bytes go; zeros until then."""
        part = self._memory[self._used : self._used + size]
        self.keep(part)
        self._used += size
        return part

    def keep(self, elements: memoryview) -> None:
        """The next elements, in a library's own memory: copying them would be on the clock."""
        part = elements.cast("B")
        self.bytes += len(part)
        if self.bytes > self._bytes_max:
            raise ValueError(f"more than the {self._bytes_max} bytes that there are came")
        self._parts.append(part)

    def digest(self) -> str:
        """Of every byte, in order: it differs as well where the same bytes came in another order."""
        sum_ = hashlib.sha256()
        for part in self._parts:
            sum_.update(part)
        return sum_.hexdigest()
