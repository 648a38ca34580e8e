import os
import select
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from lab.guest import GuestError
from lab.installed import Kernel
from lab.start import start_guest

BOOT = Path(__file__).with_name("boot")
# A program that starts a guest, tells its process id, and waits to be killed.
ORPHAN = f"""
import sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[1])!r})
from lab.start import start_guest
with start_guest(60) as guest:
    print(guest.process_id, flush=True)
    guest.run("sleep 60", 60)
"""


class GuestTest(unittest.TestCase):
    def test_scripts_files_and_share(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "shared").write_text("from the build machine")
            with start_guest(60, files={"data/added": b"added\0bytes"}, share=Path(folder)) as guest:
                self.assertEqual(guest.run("echo out; echo err >&2; exit 3").output, "out\nerr\n")
                self.assertEqual(guest.run("exit 3").status, 3)
                self.assertEqual(guest.run("cat /share/shared").output, "from the build machine")
                self.assertNotEqual(guest.run("touch /share/new").status, 0)
                self.assertEqual(guest.run("cat /data/added").output, "added\0bytes")
                self.assertEqual(guest.run("sleep 100 & echo $!; :").status, 0)
                self.assertEqual(guest.run("head -c 300000 /dev/zero | tr '\\0' x").output, "x" * 300_000)
                self.assertEqual(guest.run(f": {'y' * 300_000}\necho after").output, "after\n")
                self.assertRegex(guest.run("nvme version && modprobe nvme-tcp").checked(), "nvme version 2")
                with self.assertRaisesRegex(GuestError, "did not answer within 1 s"):
                    guest.run("sleep 30", timeout_s=1)

    def test_each_kernel_is_what_it_says(self) -> None:
        releases = {}
        for kernel in Kernel:
            with start_guest(60, kernel=kernel) as guest:
                release = guest.run("modprobe ublk_drv && uname -r").checked()
                releases[kernel] = tuple(map(int, release.split("+")[0].split(".")[:2]))
        self.assertEqual(releases[Kernel.STABLE], (6, 12))
        # UBLK_U_CMD_UPDATE_SIZE and UBLK_U_CMD_QUIESCE_DEV came between the two.
        self.assertGreaterEqual(releases[Kernel.NEWEST], (7, 2))

    def test_deadline_and_exit_status_of_boot(self) -> None:
        done = subprocess.run([BOOT, "-"], input="echo hello; exit 7", capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (7, "hello\n"))
        started = time.monotonic()
        done = subprocess.run([BOOT, "-", "--deadline", "2"], input="sleep 60", capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 124)
        self.assertIn("passed its deadline of 2 s", done.stderr)
        self.assertLess(time.monotonic() - started, 20)

    def test_a_guest_dies_with_the_program_that_started_it(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        environment = {**os.environ, "TMPDIR": folder.name}
        parent = subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True, env=environment)
        assert parent.stdout is not None
        guest = int(parent.stdout.readline())
        descriptor = os.pidfd_open(guest)
        parent.kill()
        parent.wait()
        parent.stdout.close()
        # Readable once the process has ended, whoever collects its status.
        ended, _, _ = select.select([descriptor], [], [], 10)
        self.assertEqual(ended, [descriptor])
        os.close(descriptor)


if __name__ == "__main__":
    unittest.main()
