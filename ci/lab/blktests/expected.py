"""What is known of the group's tests before they run: which cannot say anything of a foreign target, which want help, which fail and why."""

from __future__ import annotations

# Never run: these would pass or fail without a byte to or from the target.
NOT_USABLE = {
    "033": "makes nvmet's passthrough in the machine's own configfs",
    "034": "makes nvmet's passthrough in the machine's own configfs",
    "035": "makes nvmet's passthrough in the machine's own configfs",
    "036": "makes nvmet's passthrough in the machine's own configfs",
    "037": "makes nvmet's passthrough in the machine's own configfs",
    "038": "makes and removes a port in nvmet's configfs, and nothing else",
    "051": "switches a namespace on and off through nvmet's configfs",
    "057": "its four ports and their ANA states are in nvmet's configfs: without them it connects to nothing, and passes",
    "058": "its six ports, three namespaces and ANA groups are in nvmet's configfs",
    "060": "breaks nvmet's controllers through nvmet's debugfs",
    "065": "serves a scsi_debug disk through nvmet's configfs",
}

# Given a namespace of the target's as their device. The others make their own connection.
ON_A_DEVICE = {"032", "039", "046", "049", "050", "053", "059", "064", "066", "067"}

# Programs of blktests' src folder that a test runs.
HELPERS = {"064": "nvme-passthrough-meta", "067": "nvme-passthru-admin-uring", "069": "nvme-delay-ioctl"}

# Changes to the copy of a test that runs (sed), and why.
CHANGED = {
    "031": ("s/blktests-subsystem-/nqn.2014-08.org.nvmexpress:blktests-subsystem-/", "names of subsystems begin with nqn., as the specification wants"),
}

# Failures whose reason is known. One that passes is a failure, too: the list is wrong then.
KNOWN_FAILURES: dict[str, str] = {}
