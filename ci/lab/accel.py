"""How the guest's processor is run: by KVM where that boots our kernel, else by emulation (TCG)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Accelerator:
    """One of QEMU's ways, and its options."""

    name: str
    options: tuple[str, ...]


KVM = Accelerator("kvm", ("-accel", "kvm", "-cpu", "host"))
TCG = Accelerator("tcg", ("-accel", "tcg,thread=multi", "-cpu", "max"))
