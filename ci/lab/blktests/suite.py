"""One run of the group: a target, a guest with blktests in it, one test after another."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from debian.root import InstallError, Recipe, ensure_root
from lab.guest import Guest, GuestError
from lab.installed import GUEST
from lab.start import start_guest
from lab.tests.report import Unexpected
from lab.userland import ensure_userland

from .expected import ANSWERED, CHANGED, CHANGED_COMMON, HELPERS, NOT_USABLE, ON_A_DEVICE, ON_ONE_PATH
from .outcome import Outcome, Test, read_outcome
from .target import ADMIN_NAME, NQN, ControlledTarget

RECIPE = Recipe(
    "blktests",
    packages=(
        *("bash", "bsdextrautils", "coreutils", "dash", "diffutils", "e2fsprogs", "expect", "fio", "findutils", "gawk", "grep", "gzip", "kmod", "libc-bin"),
        *("liburing-dev", "linux-libc-dev", "mount", "nvme-cli", "procps", "sed", "util-linux", "uuid-runtime", "xfsprogs"),
    ),
)
LBA_BYTES = 512
# It reads one block into 4 KiB, which a target without long SGLs may refuse where a block is less. 029 wants small ones: it reads 1,025 at once.
LBA_BYTES_OF = {"046": 4096}
# Of the namespace, which several tests write from end to end: an emulated processor makes 500 to 3,000 blocks of 4 KiB a second.
IMAGE_MIB = 64
# xfs wants more.
IMAGE_MIB_OF = {"012": 350}
# A guest beside eight busy builds is twenty times as slow as one that has the machine.
PREPARE_SECONDS_MAX = 300
TEST_SECONDS_MAX = 600
# What guest/run says of a test that it has ended.
ENDED = "    ended after "
SUITE_SECONDS_MAX = 3600
GUEST_FILES = Path(__file__).parent / "guest"
# The build machine's 127.0.0.1, from the guest.
BUILD_MACHINE = "10.0.2.2"


def tests_in(blktests: Path) -> list[Test]:
    """The nvme group of a checkout."""
    tests = []
    for path in sorted((blktests / "tests/nvme").glob("[0-9][0-9][0-9]")):
        found = re.search(r'^DESCRIPTION="(.*)"', path.read_text(encoding="utf-8"), re.MULTILINE)
        tests.append(Test(path.name, found[1] if found else ""))
    if not tests:
        raise InstallError(f"{blktests} has no tests/nvme: is it a checkout of blktests?")
    return tests


class Suite:
    """A `with` block: the target and the guest end with it. The guest is started when it is needed, and again after a test that it did not survive."""

    def __init__(self, blktests: Path, bin_folder: Path, folder: Path) -> None:
        self._blktests = blktests
        self._bin = bin_folder
        self._folder = folder
        self._image = folder / "disk.raw"
        self._guest: Guest | None = None

    def __enter__(self) -> Suite:
        self._userland = ensure_userland(RECIPE)
        self._target = ControlledTarget(self._bin, self._folder)
        self._target.start()
        try:
            self._stage()
        except BaseException:
            self._target.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end_guest()
        self._target.kill()

    def run(self, test: Test) -> Outcome:
        if reason := NOT_USABLE.get(test.number):
            return Outcome(test, "not usable", 0, reason)
        if (helper := HELPERS.get(test.number)) and not (self._folder / "share/blktests/src" / helper).exists():
            return Outcome(test, "not run", 0, f"its program, {helper}, could not be built: gcc and make are needed here")
        started = time.monotonic()
        mib = IMAGE_MIB_OF.get(test.number, IMAGE_MIB)
        self._make_image(mib)
        options = "--device" if test.number in ON_A_DEVICE else "--reservations" if test.number in ANSWERED else ""
        if test.number in ON_ONE_PATH:
            options += " --one-path"
        lba_bytes = LBA_BYTES_OF.get(test.number, LBA_BYTES)
        run = f"chroot /mnt env LBA={lba_bytes} /opt/suite/run {test.number} {TEST_SECONDS_MAX} {mib}M {options}"
        try:
            said = self._ready_guest().run(run, TEST_SECONDS_MAX + 60).output
        except GuestError as error:
            self._end_guest()
            said = f"    the guest did not survive: {error}"
        if ENDED in said:
            # What it has left, a mount for one, would fail the next.
            self._end_guest()
        # A console that was cut off may hold zeros.
        return self._with_the_target(read_outcome(test, said.replace("\0", ""), time.monotonic() - started))

    def _with_the_target(self, outcome: Outcome) -> Outcome:
        """The outcome after a look at the target: it must be there still, and have nothing of the test's. A target that is gone ends the run."""
        try:
            self._target.expect_alive()
        except Unexpected as error:
            raise Unexpected(f"nvme/{outcome.test.number}: {error}") from error
        left = self._target.delete_what_is_left()
        if left and outcome.result == "passed":
            outcome = replace(outcome, result="failed", reason=f"it left {', '.join(left)}")
        if outcome.result == "failed":
            outcome = replace(outcome, output=f"{outcome.output}\n--- the target's last lines\n{self._target.log_tail()}")
        return outcome

    def _build_helpers(self, sources: Path) -> None:
        """blktests' own programs, here: the guest has no compiler. liburing is the userland's, linked statically."""
        if not shutil.which("gcc") or not shutil.which("make"):
            return
        headers = self._userland.root.path / "usr/include"
        ours = self._folder / "include"
        # liburing's, and the kernel's that it goes with; libc's stay this machine's.
        for folder in (headers / "liburing", headers / "linux", headers / "asm-generic", headers / "x86_64-linux-gnu/asm"):
            shutil.copytree(folder, ours / folder.name)
        for path in (headers / "liburing.h", self._userland.root.path / "usr/lib/x86_64-linux-gnu/liburing.a"):
            shutil.copy(path, ours)
        for helper in HELPERS.values():
            subprocess.run(["make", "-s", "-C", str(sources), helper, f"CFLAGS=-I{ours}", f"LDFLAGS=-L{ours}"], capture_output=True, check=False)

    def _make_image(self, mib: int) -> None:
        """The disk that is served, zeros, under the path that gives it its UUID."""
        with open(self._image, "wb") as image:
            image.truncate(mib << 20)

    def _ready_guest(self) -> Guest:
        """The guest, started where there is none; once more where it does not come up, as on a machine that is busy with other things."""
        if self._guest is None:
            try:
                return self._start_guest()
            except GuestError:
                self._end_guest()
                return self._start_guest()
        return self._guest

    def _start_guest(self) -> Guest:
        share = self._folder / "share"
        config = next((ensure_root(GUEST).path / "boot").glob("config-*"))
        guest = start_guest(
            SUITE_SECONDS_MAX,
            files={f"boot/{config.name}": config.read_bytes()},
            share=share,
            memory_mib=1536,
            options=self._userland.options(),
        )
        guest.__enter__()
        self._guest = guest
        guest.run("sh /share/suite/prepare", PREPARE_SECONDS_MAX).checked()
        return guest

    def _end_guest(self) -> None:
        if self._guest is not None:
            self._guest.close()
            self._guest = None

    def _stage(self) -> None:
        """The folder that the guest sees: blktests, with the changes that are written down, and what drives it."""
        suite = self._folder / "share/suite"
        suite.mkdir(parents=True)
        for path in GUEST_FILES.iterdir():
            shutil.copy(path, suite)
        for name in ("ca.pem", "client.pem", "client.key"):
            shutil.copy(self._folder / name, suite)
        shutil.copy(self._bin / "snapctl", suite)
        if strip := shutil.which("strip"):
            # A debug build is five times as large with its symbols.
            subprocess.run([strip, str(suite / "snapctl")], check=True)
        copy = self._folder / "share/blktests"
        shutil.copytree(self._blktests, copy, ignore=shutil.ignore_patterns(".git", "results"))
        for path, change in [CHANGED_COMMON, *((f"tests/nvme/{number}", change) for number, (change, _) in CHANGED.items())]:
            subprocess.run(["sed", "-i", change, str(copy / path)], check=True)
        self._build_helpers(copy / "src")
        self._make_image(IMAGE_MIB)
        source = f"file:{self._image}"
        settings = {
            "ADMIN": f"{BUILD_MACHINE}:{self._target.admin_port}",
            "ADMIN_NAME": ADMIN_NAME,
            "TRADDR": BUILD_MACHINE,
            "TRSVCID": str(self._target.test_port),
            "LISTENER": f"127.0.0.1:{self._target.test_port}",
            "SUBSYSNQN": NQN,
            "STORE": source,
            "UUID": self._target.identity_of(source, LBA_BYTES),
            "BLKDEV_TYPE": "file",
            "CONTROL_LOG": "/tmp/control.log",
        }
        (suite / "settings").write_text("".join(f"{name}={shlex.quote(value)}\n" for name, value in settings.items()), encoding="utf-8")
