import unittest
from typing import Any

from .volume import chains


def stream(name: str, chain: str, source_bytes: int, frame_elements: int | None = None) -> dict[str, Any]:
    return {"sha256": name, "stored_chain": chain, "source_bytes": source_bytes, "elements": source_bytes // 4, "frame_elements": frame_elements}


def volume(data: list[dict[str, Any]], others: list[dict[str, Any]]) -> dict[str, Any]:
    listed = [{"sha256": it["sha256"], "stored_chain": it["stored_chain"]} for it in data]
    return {"streams": [*data, *others], "views": [{"manifest": {"streams": listed}}]}


# The file system and the manifest, in the same volume.
OTHERS = [stream("disk", "lz4", 8192, 65536)]


class ChainsTest(unittest.TestCase):
    def test_one_chain_with_and_without_frames(self) -> None:
        self.assertEqual(chains(volume([stream("a", "rank+zstd:3", 1 << 20, 1024)], OTHERS)), "`rank+zstd:3`, frames of 4 KiB")
        self.assertEqual(chains(volume([stream("a", "bitpack:18", 1 << 20)], OTHERS)), "`bitpack:18`")
        self.assertEqual(chains(volume([stream("a", "lz4", 4000, 250)], OTHERS)), "`lz4`, frames of 1000 bytes")

    def test_several_files_of_a_chain_are_one_and_several_chains_have_shares(self) -> None:
        files = [stream("a", "bitpack:17", 1 << 20), stream("b", "rank+lz4", 2 << 20, 16384), stream("c", "rank+lz4", 1 << 20, 16384)]
        self.assertEqual(chains(volume(files, OTHERS)), "`rank+lz4`, frames of 64 KiB (75 % of the bytes); `bitpack:17` (25 % of the bytes)")

    def test_a_header_is_not_told(self) -> None:
        files = [stream("header", "none", 88), stream("a", "floatsplit", 1 << 20, 32768)]
        self.assertEqual(chains(volume(files, OTHERS)), "`floatsplit`, frames of 128 KiB")


if __name__ == "__main__":
    unittest.main()
