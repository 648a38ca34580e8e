import unittest
from unittest import mock

from lab.blktests import outcome
from lab.blktests.outcome import Test, read_outcome

PASSED = """nvme/004 (tr=tcp) (test nvme and nvmet UUID NS descriptors)
    runtime  3.1s  ...
nvme/004 (tr=tcp) (test nvme and nvmet UUID NS descriptors)  [passed]
    runtime  3.1s  ...  2.867s
"""
NOT_RUN = """nvme/069 (tr=tcp) (NVMe multipath cdev lifetime test)
nvme/069 (tr=tcp) (NVMe multipath cdev lifetime test)        [not run]
    kernel option KASAN has not been enabled
    and another reason
"""
FAILED = """nvme/041 (tr=tcp) (Create authenticated connections)        [failed]
    runtime    ...  6.2s
    --- tests/nvme/041.out
    +FAIL: nvme connect did not return error code
--- snapctl
nvme/999 [passed]
"""


class OutcomeTest(unittest.TestCase):
    def test_passed(self) -> None:
        read = read_outcome(Test("004", ""), PASSED, 99)
        self.assertEqual((read.result, read.seconds, read.reason), ("passed", 2.867, ""))

    def test_not_run_gives_every_reason(self) -> None:
        read = read_outcome(Test("069", ""), NOT_RUN, 1.5)
        self.assertEqual((read.result, read.seconds), ("not run", 1.5))
        self.assertEqual(read.reason, "kernel option KASAN has not been enabled; and another reason")

    def test_what_follows_the_results_is_not_read(self) -> None:
        with mock.patch.dict(outcome.KNOWN_FAILURES, clear=True):
            self.assertEqual(read_outcome(Test("041", ""), FAILED, 1).result, "failed")

    def test_known_failures(self) -> None:
        with mock.patch.dict(outcome.KNOWN_FAILURES, {"041": "why", "004": "why"}, clear=True):
            known = read_outcome(Test("041", ""), FAILED, 1)
            self.assertEqual((known.result, known.reason), ("known", "why"))
            # The list must stay true.
            self.assertEqual(read_outcome(Test("004", ""), PASSED, 1).result, "failed")

    def test_a_test_without_a_result_has_failed(self) -> None:
        self.assertEqual(read_outcome(Test("004", ""), "    ended after 300 s\n", 300).result, "failed")


if __name__ == "__main__":
    unittest.main()
