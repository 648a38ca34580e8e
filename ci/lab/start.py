"""Starts a guest on this machine: installs the lab where needed, and chooses how the guest's processor is run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from debian.root import cache_folder, exclusive

from .accel import KVM, TCG, Accelerator
from .guest import Guest, GuestError
from .installed import Kernel, Lab, ensure_lab

# Where KVM works a guest is up in two seconds. Some virtual machines offer a /dev/kvm that cannot run a stock kernel.
KVM_TRIAL_S = 10.0


def start_guest(
    deadline_s: float,
    files: Mapping[str, bytes] | None = None,
    share: Path | None = None,
    memory_mib: int = 1024,
    cpus: int = 2,
    forward: Sequence[int] = (),
    options: Sequence[str] = (),
    kernel: Kernel = Kernel.STABLE,
    from_disk: bool = False,
) -> Guest:
    """A guest for a `with` statement; see `Guest` for what the other arguments mean."""
    lab = ensure_lab(kernel)
    accelerator = choose_accelerator(lab)
    return Guest(lab, accelerator, deadline_s, files or {}, share, memory_mib, cpus, forward, options, from_disk)


def choose_accelerator(lab: Lab) -> Accelerator:
    """XIO_LAB_ACCEL where it says kvm or tcg; else KVM if a trial boot succeeds, tried once per boot of this machine."""
    if asked := os.environ.get("XIO_LAB_ACCEL"):
        return {"kvm": KVM, "tcg": TCG}[asked]
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return TCG
    machine = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    verdict = cache_folder() / "kvm-trial"
    with exclusive(verdict):
        known = verdict.read_text(encoding="utf-8").split() if verdict.is_file() else []
        if known[:1] != [machine]:
            known = [machine, _try_kvm(lab).name]
            verdict.write_text(" ".join(known) + "\n", encoding="utf-8")
    return KVM if known[1] == "kvm" else TCG


def _try_kvm(lab: Lab) -> Accelerator:
    try:
        with Guest(lab, KVM, KVM_TRIAL_S) as guest:
            return KVM if guest.run("true").status == 0 else TCG
    except GuestError:
        return TCG
