import unittest

from counts import Counts, count_tests, stage_counts

LIBTEST = "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.23s\n"
LIBTEST_FAILED = "test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s\n"
NEXTEST = "     Summary [   1.234s] 20 tests run: 19 passed (1 slow), 1 failed, 2 skipped\n"
NEXTEST_ONE = "     Summary [   0.004s] 1 test run: 1 passed, 0 skipped\n"
NEXTEST_CUT = "     Summary [   0.004s] 5/8 tests run: 4 passed, 1 failed, 0 skipped\n"
UNITTEST = "Ran 7 tests in 0.001s\n\nFAILED (failures=1, errors=2)\n"
UNITTEST_OK = "Ran 7 tests in 0.001s\n\nOK (skipped=1)\n"


class CountsTest(unittest.TestCase):
    def test_each_kind_of_summary(self) -> None:
        for printed, counts in (
            (LIBTEST, Counts(12, 0)),
            (LIBTEST_FAILED, Counts(4, 2)),
            (NEXTEST, Counts(19, 1)),
            (NEXTEST_ONE, Counts(1, 0)),
            (NEXTEST_CUT, Counts(4, 4)),
            (UNITTEST, Counts(4, 3)),
            (UNITTEST_OK, Counts(7, 0)),
            ("3 passed, 1 failed\n", Counts(3, 1)),
            (LIBTEST + LIBTEST_FAILED, Counts(16, 2)),
            ("nothing of the kind", None),
        ):
            self.assertEqual(count_tests(printed), counts, printed)

    def test_a_failed_stage_has_a_failure(self) -> None:
        self.assertEqual(stage_counts(LIBTEST, 101), Counts(12, 1))
        self.assertEqual(stage_counts(LIBTEST_FAILED, 101), Counts(4, 2))
        self.assertEqual(stage_counts("", 1), Counts(0, 1))
        self.assertEqual(stage_counts("", 0), Counts(1, 0))


if __name__ == "__main__":
    unittest.main()
