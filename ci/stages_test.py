import io
import tempfile
import time
import unittest
from contextlib import redirect_stdout
from unittest import mock

from counts import Counts
from stages import Installs, Outcome, Running, Stage, run_all, run_and_show, run_stage


def shell(script: str) -> tuple[str, ...]:
    return ("sh", "-c", script)


class StagesTest(unittest.TestCase):
    def outcome(self, *scripts: str, install: str = "", in_ci: bool = False) -> Outcome:
        stage = Stage("name", "what", tuple(map(shell, scripts)), shell(install) if install else ())
        with redirect_stdout(io.StringIO()):
            return run_stage(stage, Installs([stage]), in_ci)

    def test_a_stage_ends_with_its_first_failed_command(self) -> None:
        self.assertEqual(self.outcome("echo 2 passed, 0 failed", "echo 3 passed, 0 failed").counts, Counts(5, 0))
        self.assertEqual(self.outcome("echo 2 passed, 1 failed; exit 1", "echo 3 passed, 0 failed").counts, Counts(2, 1))
        self.assertEqual(self.outcome("exit 1").counts, Counts(0, 1))

    def test_what_cannot_be_installed_is_skipped_but_not_in_ci(self) -> None:
        skipped = self.outcome("echo 9 passed, 0 failed", install="exit 77")
        self.assertEqual((skipped.counts, skipped.note), (Counts(0, 0), "skipped: cannot be installed here"))
        self.assertEqual(self.outcome("true", install="exit 77", in_ci=True).counts, Counts(0, 1))
        self.assertEqual(self.outcome("true", install="exit 1").counts, Counts(0, 1))
        self.assertEqual(self.outcome("true", install="exit 0").counts, Counts(1, 0))

    def test_stages_that_run_beside_each_other_are_last_and_two_at_once(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            # Each waits for the other.
            meet = "touch {0}/{1}; until test -e {0}/{2}; do sleep 0.05; done; echo {3} passed, 0 failed"
            stages = [
                Stage("a", "", (shell(meet.format(name, "a", "b", 1)),), beside=True),
                Stage("first", "", (shell(f"test ! -e {name}/a; echo $((1 - $?)) passed, 0 failed"),)),
                Stage("b", "", (shell(meet.format(name, "b", "a", 2)),), beside=True),
            ]
            shown = io.StringIO()
            with redirect_stdout(shown):
                outcomes = run_all(stages, Installs(stages), in_ci=True)
        self.assertEqual([(it.stage.name, it.counts) for it in outcomes], [("first", Counts(1, 0)), ("a", Counts(1, 0)), ("b", Counts(2, 0))])
        self.assertIn("\na: 1 passed, 0 failed\n", shown.getvalue())

    def test_where_one_cannot_go_on_the_other_is_ended(self) -> None:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as name:
            there = f"{name}/there"
            stages = [
                Stage("a", "", (shell(f"until test -e {there}; do sleep 0.05; done"), ("no-such-program",)), beside=True),
                Stage("b", "", (shell(f"touch {there}; sleep 60"),), beside=True),
            ]
            with redirect_stdout(io.StringIO()), mock.patch("stages.RUNNING", Running()), self.assertRaises(FileNotFoundError):
                run_all(stages, Installs(stages), in_ci=True)
        self.assertLess(time.monotonic() - started, 40)

    def test_out_of_time_everything_that_a_command_started_is_killed(self) -> None:
        started = time.monotonic()
        with redirect_stdout(io.StringIO()):
            # The child holds the output open; only its end lets the reading end.
            output, status = run_and_show(("sh", "-c", "echo 1; sleep 60 & wait"), 5.0)
        self.assertEqual((output, status), ("1\n", -9))
        self.assertLess(time.monotonic() - started, 40)


if __name__ == "__main__":
    unittest.main()
