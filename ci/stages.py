"""Runs the stages of ci/test one after another, those that wait much two at a time, with what they need downloaded meanwhile, and sums them up."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from counts import Counts, stage_counts
from debian.mirror import CANNOT_INSTALL_HERE

REPOSITORY = Path(__file__).resolve().parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
STAGE_SECONDS_MAX = 40 * 60
# Of those that run beside each other: guests leave half of two processors idle.
STAGES_AT_ONCE = 2


@dataclass(frozen=True)
class Stage:
    """One check. `commands` run in order until one fails; `install` has run in the background before. `beside`: it runs beside another such one."""

    name: str
    what: str
    commands: tuple[tuple[str, ...], ...]
    install: tuple[str, ...] = ()
    beside: bool = False


@dataclass(frozen=True)
class Outcome:
    stage: Stage
    counts: Counts
    seconds: float
    note: str = ""


def stages() -> list[Stage]:
    test: tuple[str, ...] = ("test", "--no-fail-fast", "--lib", "--bins", "--tests")
    # Tests that need another package's program are ignored where all are run.
    admin_test: tuple[str, ...] = ("test", "--workspace", "--test", "cli", "--", "--ignored", "daemon::")
    if shutil.which("cargo-nextest"):
        test = ("nextest", "run", "--no-fail-fast", "--no-tests=pass")
        admin_test = ("nextest", "run", "--workspace", "-E", "package(snapctl)", "--run-ignored", "only")
    lint = ("--all-targets", "--", "-D", "warnings")
    lab_test = ("ci/lab/test", "--snap-target", str(TARGET / "debug/snap-target"), "--xio", str(TARGET / "debug/xio"))
    examples = TARGET / "debug/examples"
    fabrics_test = ("ci/lab/fabrics", *lab_test[1:], "--snapctl", str(TARGET / "debug/snapctl"), "--bench", str(examples / "bench"))
    verbs_test = ("ci/lab/verbs", "--suite", str(TARGET / "debug/examples/verbs"))
    operate_test = (
        *("ci/lab/operate", "--snap-target", str(TARGET / "debug/snap-target")),
        *("--snapctl", str(TARGET / "debug/snapctl"), "--xio", str(TARGET / "debug/xio")),
    )
    hang_test = ("ci/lab/hang", *operate_test[1:])
    pcie_test = ("ci/lab/pcie", *lab_test[1:], "--snapctl", str(TARGET / "debug/snapctl"))
    virtio_test = ("ci/lab/virtio", *operate_test[1:])
    ublk_test = ("ci/lab/ublk", *operate_test[1:])
    programs_of_a_disk = ("--xio", str(TARGET / "debug/xio"), "--snap-target", str(TARGET / "debug/snap-target"))
    mount_test = (
        *("ci/lab/mount", "--image", str(examples / "image"), "--table", str(examples / "table")),
        *programs_of_a_disk,
    )
    nfs_test = ("ci/lab/nfs", *programs_of_a_disk)
    # All at once, and the examples with them, whose dependencies have the features that those of tests have: nothing is compiled twice.
    programs = ("cargo", "build", "--workspace", "--bins", "--examples")
    python = (sys.executable, "-m", "unittest", "discover", "-s", "ci", "-t", "ci", "-p")
    return [
        Stage("format", "rustfmt", (("cargo", "fmt", "--all", "--check"),)),
        Stage("docs", "links and commands in the documents", ((sys.executable, "ci/documents.py"),)),
        Stage("fixtures", "the real data is what it was", (("sh", "-c", "cd fixtures && sha256sum --quiet -c SHA256SUMS"),)),
        Stage("clippy", "lints, warnings are errors", (("cargo", "clippy", "--workspace", *lint),)),
        # A workspace of its own, which needs nightly Rust to be run; stable Rust shows that it compiles.
        Stage("fuzz", "the fuzz targets compile", (("cargo", "check", "--manifest-path", "fuzz/Cargo.toml", "--bins", "--locked"),)),
        Stage("tests", "unit, property and integration tests", (("cargo", *test, "--workspace"),)),
        Stage("doc-tests", "examples in the API documents", (("cargo", "test", "--workspace", "--doc"),)),
        Stage("demo", "the main job, every byte compared", (programs, (str(TARGET / "debug/xio"), "demo"))),
        Stage(
            "admin",
            "snapctl changes a running daemon, and a host sees it",
            (programs, ("cargo", *admin_test)),
        ),
        Stage(
            "formats",
            "views and a disk's files, opened with each format's own reader; floats, rounded as numpy rounds them",
            (
                programs,
                ("ci/formats/test", "--view", str(examples / "view"), *programs_of_a_disk),
                ("ci/formats/floats", "--frame", str(examples / "frame")),
            ),
            install=("ci/formats/install",),
        ),
        Stage(
            "models",
            "model views, loaded by transformers",
            (programs, ("ci/formats/transformers", "--view", str(examples / "view"))),
            install=("ci/formats/transformers", "--install-only"),
        ),
        Stage("ci", "the checks' own parts, the guest included", ((*python, "*_test.py"),), install=("ci/lab/install",)),
        Stage(
            "lab",
            "a real Linux NVMe host against snap-target; then verbs on soft-RoCE",
            (programs, lab_test, verbs_test),
            install=("ci/lab/install",),
            beside=True,
        ),
        Stage(
            "fabrics",
            "NVMe over RDMA and TCP, xio too, against Linux over networks that the test breaks",
            (programs, fabrics_test),
            install=("ci/lab/install",),
            beside=True,
        ),
        Stage(
            "mount",
            "a stock Linux kernel mounts what xio pack makes of a folder, and what the erofs and gpt crates lay out; numpy reads it there; files on NFS, mapped and served",
            (programs, mount_test, nfs_test),
            install=("ci/lab/install",),
            beside=True,
        ),
        Stage(
            "operate",
            "an operator changes what is served while real Linux hosts have it, and while a disk hangs",
            (programs, operate_test, hang_test),
            install=("ci/lab/install",),
            beside=True,
        ),
        Stage(
            "pcie",
            "a guest's stock nvme driver has snap-target on its PCI bus, over vfio-user",
            (programs, pcie_test),
            install=("ci/lab/install",),
            beside=True,
        ),
        Stage(
            "virtio",
            "a guest's stock virtio-blk driver has snap-target's disks, over vhost-user, through kills of the daemon",
            (programs, virtio_test),
            install=("ci/lab/install",),
            beside=True,
        ),
        Stage(
            "ublk",
            "snap-target's disks as block devices of its own machine, on two kernels, through kills of the daemon",
            (programs, ublk_test),
            install=("ci/lab/install",),
            beside=True,
        ),
        Stage(
            "aarch64",
            "the crates that a DPU runs, under qemu-user",
            (("ci/aarch64/test",),),
            install=("ci/aarch64/test", "--install-only"),
            beside=True,
        ),
    ]


class Installs:
    """The installers of the chosen stages, one after another beside the first stages."""

    def __init__(self, chosen: list[Stage]) -> None:
        self._ended = {stage.install: threading.Event() for stage in chosen if stage.install}
        self._results: dict[tuple[str, ...], subprocess.CompletedProcess[str]] = {}
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        for command, ended in self._ended.items():
            self._results[command] = subprocess.run(
                command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
            )
            ended.set()

    def wait(self, command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        self._ended[command].wait(STAGE_SECONDS_MAX)
        return self._results[command]


def run_stage(stage: Stage, installs: Installs, in_ci: bool) -> Outcome:
    show(f"\n=== {stage.name}: {stage.what}\n")
    started = time.monotonic()
    # Whose line it is, where two stages print.
    mark = f"{stage.name}: " if stage.beside else ""
    if stage.install:
        installed = installs.wait(stage.install)
        show("".join(mark + line for line in installed.stdout.splitlines(keepends=True)))
        if installed.returncode == CANNOT_INSTALL_HERE and not in_ci:
            return Outcome(stage, Counts(0, 0), time.monotonic() - started, "skipped: cannot be installed here")
        if installed.returncode != 0:
            return Outcome(stage, Counts(0, 1), time.monotonic() - started, "cannot be installed")
    printed, status = "", 0
    for command in stage.commands:
        output, status = run_and_show(command, STAGE_SECONDS_MAX - (time.monotonic() - started), mark)
        printed += output
        if status != 0:
            break
    seconds = time.monotonic() - started
    note = "" if status == 0 else f"exit status {status}"
    if status != 0 and seconds >= STAGE_SECONDS_MAX:
        note = f"killed: it took more than {STAGE_SECONDS_MAX // 60} minutes"
    return Outcome(stage, stage_counts(printed, status), seconds, note)


def run_all(chosen: list[Stage], installs: Installs, in_ci: bool) -> list[Outcome]:
    """In their order; those that run beside each other last."""
    outcomes = [run_stage(stage, installs, in_ci) for stage in chosen if not stage.beside]
    with ThreadPoolExecutor(STAGES_AT_ONCE) as pool:
        begun = [pool.submit(run_stage, stage, installs, in_ci) for stage in chosen if stage.beside]
        try:
            return outcomes + [it.result() for it in begun]
        except BaseException:
            # Interrupted, say: what the other threads run is not in this terminal's group.
            pool.shutdown(wait=False, cancel_futures=True)
            RUNNING.end()
            raise


class Running:
    """The commands that run. Once they have been ended, none runs any more."""

    def __init__(self) -> None:
        self._processes: set[subprocess.Popen[str]] = set()
        self._has_ended = False
        self._lock = threading.Lock()

    def add(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._processes.add(process)
        if self._has_ended:
            self.end()

    def remove(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._processes.discard(process)

    def end(self) -> None:
        with self._lock:
            self._has_ended = True
            for process in self._processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


RUNNING = Running()


def show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def run_and_show(command: tuple[str, ...], seconds_max: float, mark: str = "") -> tuple[str, int]:
    """What the command printed, shown as it comes with `mark` before each line, and its exit status. Out of time, all that it started is killed."""
    lines = []
    with subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        timer = threading.Timer(max(1.0, seconds_max), os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        RUNNING.add(process)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                show(mark + line)
            status = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            timer.cancel()
            RUNNING.remove(process)
    return "".join(lines), status


def show_summary(outcomes: list[Outcome], seconds: float) -> Counts:
    total = sum((outcome.counts for outcome in outcomes), Counts(0, 0))
    print(f"\n{'stage':<12}{'passed':>8}{'failed':>8}{'seconds':>9}")
    for outcome in outcomes:
        counts = outcome.counts
        print(f"{outcome.stage.name:<12}{counts.passed:>8}{counts.failed:>8}{outcome.seconds:>9.0f}  {outcome.note}".rstrip())
    print(f"{'all':<12}{total.passed:>8}{total.failed:>8}{seconds:>9.0f}\n")
    print(f"{total.passed} passed, {total.failed} failed", flush=True)
    return total


def main() -> int:
    everything = stages()
    parser = argparse.ArgumentParser(prog="ci/test")
    parser.add_argument("--only", action="append", choices=[stage.name for stage in everything], metavar="STAGE")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    if given.list:
        for stage in everything:
            print(f"{stage.name:<12}{stage.what}")
        return 0
    chosen = [stage for stage in everything if not given.only or stage.name in given.only]
    in_ci = os.environ.get("CI") == "true"
    # Each build here starts from little, so its incremental state would cost more than it gives.
    os.environ.setdefault("CARGO_INCREMENTAL", "0")
    started = time.monotonic()
    installs = Installs(chosen)
    outcomes = run_all(chosen, installs, in_ci)
    total = show_summary(outcomes, time.monotonic() - started)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
