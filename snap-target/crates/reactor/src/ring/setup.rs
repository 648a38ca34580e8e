//! Making the io_uring: what this kernel has, less what is masked.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use io_uring::{IoUring, Probe, opcode};
use nix::errno::Errno;
use nix::libc;

use super::errno;
use super::recv::GROUP;
use crate::config::{COMPLETIONS_MIN, RingConfig, SUBMISSIONS_MIN};
use crate::error::ReactorError;
use crate::features::Features;

/// Entries of the ring's two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entries {
    pub(super) submissions: u32,
    pub(super) completions: u32,
}

impl Entries {
    /// Room for every operation to complete twice before a turn takes anything.
    pub(super) fn wanted(config: &RingConfig) -> Self {
        Self {
            submissions: config.submissions,
            completions: (config.ops_max.max(config.submissions) * 2).next_power_of_two(),
        }
    }

    /// Half of them, down to the least that a ring is made with.
    pub(super) fn halved(self) -> Option<Self> {
        let half = |now: u32, min: u32| (now / 2).max(min).min(now);
        let half = Self {
            submissions: half(self.submissions, SUBMISSIONS_MIN),
            completions: half(self.completions, COMPLETIONS_MIN),
        };
        (half != self).then_some(half)
    }
}

/// Builds the ring with as many of the wanted features as this kernel takes.
pub(super) fn build(
    config: &RingConfig,
    entries: Entries,
) -> Result<(IoUring, Features), ReactorError> {
    let mut wanted = config.features.closed();
    // Setup flags cannot be probed: newest first, one is given up at each EINVAL.
    let uring = loop {
        match try_build(entries, wanted) {
            Ok(uring) => break uring,
            Err(Errno::EINVAL) => {
                let newest = [
                    Features::DEFER_TASKRUN,
                    Features::SINGLE_ISSUER,
                    Features::COOP_TASKRUN,
                ];
                let Some(&give_up) = newest.iter().find(|&&one| wanted.contains(one)) else {
                    return Err(ReactorError::Setup {
                        what: "the ring",
                        source: Errno::EINVAL,
                    });
                };
                wanted = (wanted - give_up).closed();
            }
            Err(source) => return Err(refusal(source)),
        }
    };
    let params = uring.params();
    if !params.is_feature_ext_arg()
        || !params.is_feature_nodrop()
        || !params.is_feature_submit_stable()
    {
        return Err(ReactorError::TooOld {
            what: "waits with a timeout (EXT_ARG, Linux 5.11)",
        });
    }
    let have = probe(&uring)?;
    Ok((uring, (wanted & have).closed()))
}

fn try_build(entries: Entries, wanted: Features) -> Result<IoUring, Errno> {
    let mut builder = IoUring::builder();
    builder.setup_cqsize(entries.completions).setup_clamp();
    if wanted.contains(Features::COOP_TASKRUN) {
        builder.setup_coop_taskrun();
    }
    if wanted.contains(Features::SINGLE_ISSUER) {
        builder.setup_single_issuer();
    }
    if wanted.contains(Features::DEFER_TASKRUN) {
        builder.setup_defer_taskrun();
    }
    if wanted.contains(Features::COOP_TASKRUN) || wanted.contains(Features::DEFER_TASKRUN) {
        builder.setup_taskrun_flag();
    }
    builder
        .build(entries.submissions)
        .map_err(|error| errno(&error))
}

/// What the kernel knows, told by its newest operation of each release: the features themselves have no probe.
fn probe(uring: &IoUring) -> Result<Features, ReactorError> {
    let mut probe = Probe::new();
    uring
        .submitter()
        .register_probe(&mut probe)
        .map_err(|error| ReactorError::Setup {
            what: "the probe of io_uring's operations",
            source: errno(&error),
        })?;
    let has = |code| probe.is_supported(code);
    if !has(opcode::Shutdown::CODE) {
        return Err(ReactorError::TooOld {
            what: "operations of Linux 5.11",
        });
    }
    // Setup flags were settled by try_build.
    let mut have = Features::COOP_TASKRUN | Features::SINGLE_ISSUER | Features::DEFER_TASKRUN;
    if has(opcode::MsgRingData::CODE) {
        have = have | Features::MSG_RING; // 5.18
    }
    if has(opcode::Socket::CODE) {
        have = have | Features::BUFFER_RINGS | Features::MULTISHOT_ACCEPT; // 5.19
    }
    if has(opcode::SendZc::CODE) {
        have = have | Features::MULTISHOT_RECV; // 6.0
    }
    if has(opcode::SendMsgZc::CODE) {
        have = have | Features::SEND_ZC; // 6.1
    }
    Ok(have)
}

fn refusal(source: Errno) -> ReactorError {
    let advice = match source {
        Errno::ENOSYS => {
            "the kernel has no io_uring, or a seccomp profile hides it: use Linux 5.15 or later; in a container, run with a seccomp \
             profile that allows io_uring_setup, io_uring_enter and io_uring_register"
        }
        Errno::EPERM | Errno::EACCES => {
            "check `sysctl kernel.io_uring_disabled` (set it to 0); in a container, run with a seccomp profile that allows \
             io_uring_setup, io_uring_enter and io_uring_register"
        }
        Errno::ENOMEM => {
            "out of memory, or RLIMIT_MEMLOCK (ulimit -l) has no room for the smallest ring: raise it (`snapctl doctor` says to what), or see to the memory"
        }
        Errno::EMFILE | Errno::ENFILE => "out of file descriptors: raise RLIMIT_NOFILE (ulimit -n)",
        _ => {
            return ReactorError::Setup {
                what: "the ring",
                source,
            };
        }
    };
    ReactorError::Refused { advice, source }
}

/// A second descriptor of the ring, for messages from other rings.
pub(super) fn duplicate(uring: &IoUring) -> Result<OwnedFd, ReactorError> {
    // SAFETY: F_DUPFD_CLOEXEC has no memory arguments.
    let fd = unsafe { libc::fcntl(uring.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
    if fd < 0 {
        return Err(ReactorError::Setup {
            what: "a second descriptor of the ring",
            source: Errno::last(),
        });
    }
    // SAFETY: fcntl returned a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes shared memory back from the kernel. A waker may keep the ring's file open after us, so closing it is not enough.
pub(super) fn unregister(uring: &IoUring, shared_receive: bool) {
    if shared_receive && let Err(error) = uring.submitter().unregister_buf_ring(GROUP) {
        tracing::error!(%error, "unregistering the receive buffers failed");
    }
    // Nothing registered is the usual answer, and fine.
    let _ = uring.submitter().unregister_buffers();
}
