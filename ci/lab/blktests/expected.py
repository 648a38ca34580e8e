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
    "057": "its four ports and their ANA states are in nvmet's configfs: without them it connects to nothing, and passes",
    "058": "its six ports, three namespaces and ANA groups are in nvmet's configfs",
    "065": "serves a scsi_debug disk through nvmet's configfs",
}

# Given a namespace of the target's as their device. The others make their own connection.
ON_A_DEVICE = {"032", "039", "046", "049", "050", "053", "059", "064", "066", "067"}

# Of those, the one that Linux 6.12 wants a host without multipath for: the disk above several paths has no atomic writes there.
ON_ONE_PATH = {"059"}

# Programs of blktests' src folder that a test runs.
HELPERS = {"064": "nvme-passthrough-meta", "067": "nvme-passthru-admin-uring", "069": "nvme-delay-ioctl"}

# Changes to the copy of a test that runs (sed), and what they are.
NQN_PREFIX = "s/blktests-subsystem-/nqn.2014-08.org.nvmexpress:&/"
CHANGED = {
    "030": (
        f"{NQN_PREFIX}; /_require_kernel_nvme_target/d; s|^test() {{|. /opt/suite/nvmet-functions\\n&|",
        "changed: what it changes in nvmet's configfs, snapctl changes",
    ),
    "031": (NQN_PREFIX, "changed: names of subsystems begin with nqn., as the specification wants"),
    "051": (
        r"""s/i <= 200/i <= 20/; s/echo 0 >.*/"${nvme_target_control}" detach/; s/echo 1 >.*/"${nvme_target_control}" attach/""",
        "changed: two loops of snapctl namespace detach and attach at once, 20 rounds",
    ),
    "060": (
        r"""/_have_kernel_option NVME_TARGET_DEBUGFS/d; s/^nvmet_debug_trigger_reset() {/&\n\t"${nvme_target_control}" end-controllers; return/""",
        "changed: controllers are ended by snapctl, where nvmet's are through its debugfs",
    ),
}

# The same to what all tests share: Debian's release of the kernel (6.12.107+deb13-amd64) is no number to blktests.
CHANGED_COMMON = ("common/rc", r"/uname -r | sed/s/-\.\*/[-+].*/")

# Asks nvmet's configfs whether the namespace has reservations; for this target a file at that place answers.
ANSWERED = {"054": "resv_enable, a file of nvmet's configfs, says that the namespace has reservations"}

# Failures whose reason is known. One that passes is a failure, too: the list is wrong then.
NO_AUTHENTICATION = "snap-target has no DH-HMAC-CHAP: setup with a host key is refused"
KNOWN_FAILURES = {
    "041": NO_AUTHENTICATION,
    "042": NO_AUTHENTICATION,
    "043": NO_AUTHENTICATION,
    "044": NO_AUTHENTICATION,
    "045": NO_AUTHENTICATION,
    "068": "the guest's Linux 6.12 has no delayed_removal_secs",
}
