import unittest
from collections.abc import Iterable

from .delivered import DELIVERED_BYTES_MAX, Delivered

BLOCKS = [bytes([number]) * 4096 for number in range(4)]


def kept(blocks: Iterable[bytes]) -> Delivered:
    delivered = Delivered(4 * 4096)
    for block in blocks:
        delivered.room(len(block))[:] = block
    return delivered


class DeliveredTest(unittest.TestCase):
    def test_two_blocks_in_each_others_place_are_another_digest(self) -> None:
        first, second, third, last = BLOCKS
        self.assertNotEqual(kept([first, third, second, last]).digest(), kept(BLOCKS).digest())

    def test_one_other_and_one_missing_byte_are_another_digest(self) -> None:
        *whole, last = BLOCKS
        for wrong in (last[:-1] + b"x", last[:-1]):
            self.assertNotEqual(kept([*whole, wrong]).digest(), kept(BLOCKS).digest())

    def test_pieces_and_whose_memory_they_are_in_do_not_matter(self) -> None:
        delivered = Delivered(4 * 4096)
        delivered.room(4096 + 10)[:] = BLOCKS[0] + BLOCKS[1][:10]
        delivered.keep(memoryview(BLOCKS[1][10:] + BLOCKS[2]).cast("H"))
        delivered.room(4096)[:] = BLOCKS[3]
        self.assertEqual(delivered.bytes, 4 * 4096)
        self.assertEqual(delivered.digest(), kept(BLOCKS).digest())

    def test_more_than_there_is_does_not_fit(self) -> None:
        with self.assertRaises(ValueError):
            kept([*BLOCKS, b"x"])
        with self.assertRaises(ValueError):
            Delivered(DELIVERED_BYTES_MAX + 1)


if __name__ == "__main__":
    unittest.main()
