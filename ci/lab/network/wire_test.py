import unittest
from random import Random

from lab.network.faults import Corrupt, Cut, Delay, Drop, Duplicate, Fault, Faults, Rate, Reorder
from lab.network.frames import corrupt_piece
from lab.network.wire import Wire

KINDS = (Fault,)


def numbered(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


class WireTest(unittest.TestCase):
    """A clock that the test moves; the wire from a to b is used unless it says otherwise."""

    def setUp(self) -> None:
        self.now_s = 100.0
        self.make(seed=1)

    def make(self, seed: int, lossy: bool = True) -> None:
        self.faults = Faults(("a", "b"), KINDS, seed)
        self.wire, self.back = (Wire(self.faults, *way, lossy=lossy, corrupt=corrupt_piece) for way in (("a", "b"), ("b", "a")))

    def put(self, *data: bytes, wire: Wire | None = None) -> None:
        for piece in data:
            (wire or self.wire).put(piece, self.now_s)

    def take(self, after_s: float = 0.0, wire: Wire | None = None) -> list[bytes]:
        self.now_s += after_s
        return (wire or self.wire).take(self.now_s)

    def passed(self, count: int) -> list[bytes]:
        self.put(*numbered(0, count))
        return self.take()

    def test_without_faults_everything_passes_at_once(self) -> None:
        self.assertEqual(self.passed(5), numbered(0, 5))
        self.assertIsNone(self.wire.due_s())
        self.assertEqual(self.wire.waiting_bytes, 0)

    def test_cut_loses_frames_in_the_direction_that_it_names(self) -> None:
        with self.faults.add(Cut(), "a", "b") as cut:
            self.assertEqual(self.passed(3), [])
            self.put(b"back", wire=self.back)
            self.assertEqual(self.take(wire=self.back), [b"back"])
            self.assertEqual((cut.met, cut.acted), (3, 3))
        self.assertEqual(self.take(1000), [])
        self.assertEqual(self.passed(2), numbered(0, 2))

    def test_both_is_the_way_back_too(self) -> None:
        with self.faults.add(Cut(), "a", "b", both=True):
            self.put(b"back", wire=self.back)
            self.assertEqual((self.passed(1), self.take(wire=self.back)), ([], []))

    def test_cut_keeps_what_a_stream_has_until_it_is_lifted(self) -> None:
        self.make(1, lossy=False)
        cut = self.faults.add(Cut())
        self.assertEqual(self.passed(3), [])
        self.assertTrue(self.wire.is_held())
        self.assertIsNone(self.wire.due_s())
        self.assertEqual(self.wire.waiting_bytes, 3)
        cut.lift()
        self.assertEqual(self.wire.due_s(), self.now_s)
        self.assertEqual(self.take(), numbered(0, 3))

    def test_drop_the_next(self) -> None:
        drop = self.faults.add(Drop(count=2))
        self.assertEqual(self.passed(5), numbered(2, 5))
        self.assertEqual((drop.met, drop.acted), (5, 2))

    def test_drop_by_probability_is_the_seeds_choice(self) -> None:
        lost = []
        for seed in (1, 1, 2):
            self.make(seed)
            drop = self.faults.add(Drop(probability=0.1))
            left = set(self.passed(10_000))
            lost.append(frozenset(numbered(0, 10_000)) - left)
            self.assertEqual(len(lost[-1]), drop.acted)
        self.assertEqual(lost[0], lost[1])
        self.assertNotEqual(lost[0], lost[2])
        # Four standard deviations of a binomial distribution around 1,000.
        self.assertAlmostEqual(len(lost[0]), 1000, delta=120)

    def test_choices_in_one_direction_do_not_depend_on_the_other(self) -> None:
        self.faults.add(Drop(probability=0.5))
        alone = self.passed(100)
        self.make(seed=1)
        self.faults.add(Drop(probability=0.5))
        mixed = []
        for piece in numbered(0, 100):
            self.put(b"back", wire=self.back)
            self.put(piece)
            mixed += self.take()
        self.assertEqual(mixed, alone)

    def test_when_chooses(self) -> None:
        drop = self.faults.add(Drop(count=1), when=lambda piece: piece == b"3")
        self.assertEqual(self.passed(5), [b"0", b"1", b"2", b"4"])
        self.assertEqual((drop.met, drop.acted), (1, 1))

    def test_duplicate(self) -> None:
        self.faults.add(Duplicate(count=1))
        self.assertEqual(self.passed(2), [b"0", b"0", b"1"])

    def test_corrupt_changes_one_byte(self) -> None:
        self.faults.add(Corrupt(count=1, offset=2))
        self.put(b"xy", b"abcd", b"abcd")
        # The first is too short, and counts as none.
        short, (a, b, c, d), whole = self.take()
        self.assertEqual((short, bytes((a, b, d)), whole), (b"xy", b"abd", b"abcd"))
        self.assertNotEqual(c, ord("c"))

    def test_corrupt_anywhere(self) -> None:
        places = set()
        for seed in range(200):
            changed = corrupt_piece(b"abcd", Corrupt(), Random(seed)) or b""
            (place,) = [at for at in range(4) if changed[at] != b"abcd"[at]]
            places.add(place)
        self.assertEqual(places, {0, 1, 2, 3})

    def test_delay(self) -> None:
        delay = self.faults.add(Delay(delay_ms=5))
        self.put(b"0")
        self.assertEqual(self.take(0.004), [])
        self.assertAlmostEqual(self.wire.due_s() or 0, 100.005)
        delay.lift()
        # What is sent without a delay does not overtake what is under way.
        self.put(b"1")
        self.assertEqual(self.take(), [])
        self.assertEqual(self.take(0.002), [b"0", b"1"])

    def test_jitter_keeps_the_order_and_its_bounds(self) -> None:
        self.faults.add(Delay(delay_ms=5, jitter_ms=10))
        dues = []
        for number in range(100):
            self.now_s = 100.0 + number
            self.put(b"%d" % number)
            dues.append((self.wire.due_s() or 0) - self.now_s)
            self.assertEqual(self.take(0.016), [b"%d" % number])
        self.assertTrue(0.005 <= min(dues) < 0.006 and 0.014 < max(dues) <= 0.015, (min(dues), max(dues)))
        self.put(*numbered(0, 100))
        self.assertEqual(self.take(0.016), numbered(0, 100))

    def test_reorder_lets_so_many_pass(self) -> None:
        reorder = self.faults.add(Reorder(count=1, behind=2, held_ms_max=50))
        self.assertEqual(self.passed(4), [b"1", b"2", b"0", b"3"])
        self.assertEqual(reorder.acted, 1)
        self.assertEqual(self.wire.waiting_bytes, 0)
        self.assertIsNone(self.wire.due_s())

    def test_reorder_holds_the_last_no_longer_than_it_says(self) -> None:
        self.faults.add(Reorder(count=1, behind=2, held_ms_max=50))
        self.put(b"0", b"1")
        self.assertEqual(self.take(), [b"1"])
        self.assertAlmostEqual(self.wire.due_s() or 0, 100.05)
        self.assertEqual(self.take(0.051), [b"0"])

    def test_what_was_sent_before_overtakes_nothing(self) -> None:
        self.faults.add(Reorder(count=2, behind=1, held_ms_max=50))
        self.put(b"0")
        self.now_s += 0.010
        self.put(b"1")
        self.assertEqual(self.take(0.041), [b"0"])
        self.assertEqual(self.take(0.010), [b"1"])

    def test_reorder_and_delay_together(self) -> None:
        self.faults.add(Delay(delay_ms=5))
        self.faults.add(Reorder(count=1, behind=1))
        self.put(*numbered(0, 3))
        self.assertEqual(self.take(0.004), [])
        self.assertEqual(self.take(0.002), [b"1", b"0", b"2"])

    def test_rate(self) -> None:
        rate = self.faults.add(Rate(bytes_per_s=1000, burst_bytes=200))
        self.put(*[bytes(100)] * 5)
        # The bucket was full: two pass at once, the others each 100 ms later.
        self.assertEqual(len(self.take()), 2)
        for _ in range(3):
            self.assertEqual(len(self.take(0.099)), 0)
            self.assertEqual(len(self.take(0.0011)), 1)
        self.assertEqual(rate.acted, 3)
        # And full it is again after a pause, but no fuller.
        self.now_s += 1000
        self.put(*[bytes(100)] * 5)
        self.assertEqual(len(self.take()), 2)

    def test_rate_loses_frames_that_a_full_queue_has_no_room_for_but_no_bytes_of_a_stream(self) -> None:
        for lossy, passed in ((True, 6), (False, 10)):
            self.make(1, lossy)
            rate = self.faults.add(Rate(bytes_per_s=1000, burst_bytes=100, queue_bytes_max=400))
            self.put(*[bytes(100)] * 10)
            self.assertEqual((len(self.take(60)), rate.overflowed), (passed, 10 - passed))

    def test_rules_act_in_their_order(self) -> None:
        self.faults.add(Drop(count=1))
        second = self.faults.add(Drop(count=1))
        self.assertEqual(self.passed(3), [b"2"])
        self.assertEqual((second.met, second.acted), (2, 1))

    def test_unknown_ends_and_kinds_are_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "no end 'c': there are a, b"):
            self.faults.add(Cut(), "c")
        with self.assertRaisesRegex(ValueError, "Duplicate.* is no fault of this network: it has Cut, Delay"):
            Faults(("a", "b"), (Cut, Delay), 1).add(Duplicate())


if __name__ == "__main__":
    unittest.main()
