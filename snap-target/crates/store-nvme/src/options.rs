//! What a remote store is told, checked once.

use std::time::Duration;

use nvme::nqn::Nqn;
use nvme_spec::Nsid;

use crate::error::OptionsError;

/// How long an operation of a store may take, all attempts together: below the 30 s after which hosts give a command up.
pub const DEADLINE_MAX: Duration = Duration::from_secs(25);
/// Shortest keep-alive timeout: what most controllers count it in (KAS).
const KEEP_ALIVE_MIN: Duration = Duration::from_millis(100);
/// Paths of one store.
pub const PATHS_MAX: usize = 8;
/// Reactors of one store: I/O queues asked for on each path.
pub const HANDLES_MAX: u16 = 128;

/// How a usable path is chosen among several that are equally good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// The one with the fewest commands outstanding.
    QueueDepth,
}

/// What a remote store is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteOptions {
    /// The namespace; `None`: the only one that the subsystem has for this host.
    pub nsid: Option<Nsid>,
    /// Who connects.
    pub hostnqn: Nqn,
    /// Host identifier: the same on every path, so that the target knows one host.
    pub host_id: [u8; 16],
    /// Commands outstanding on one queue.
    pub depth: u16,
    /// TCP: header digests.
    pub header_digest: bool,
    /// TCP: data digests.
    pub data_digest: bool,
    /// KATO.
    pub keep_alive: Duration,
    /// What the network can hold back; it stands for CQT as well where a controller reports none.
    pub quiesce_margin: Duration,
    /// A connection stands after this time, or does not.
    pub connect_timeout: Duration,
    /// A command that is not answered within this time ends its association.
    pub command_timeout: Duration,
    /// A read that is not answered within this time is sent on another path, where there is one.
    pub failover_after: Duration,
    /// An operation ends within this time, one way or another.
    pub deadline: Duration,
    /// The wait before a lost path is connected again; it doubles up to [`RemoteOptions::reconnect_delay_max`].
    pub reconnect_delay_min: Duration,
    /// See there.
    pub reconnect_delay_max: Duration,
    /// How paths share the work.
    pub policy: Policy,
}

impl RemoteOptions {
    /// What a user who says nothing gets.
    #[must_use]
    pub fn new(hostnqn: Nqn, host_id: [u8; 16]) -> Self {
        Self {
            nsid: None,
            hostnqn,
            host_id,
            depth: 128,
            header_digest: false,
            data_digest: true,
            keep_alive: Duration::from_secs(5),
            quiesce_margin: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(3),
            command_timeout: Duration::from_secs(8),
            failover_after: Duration::from_millis(800),
            deadline: DEADLINE_MAX,
            reconnect_delay_min: Duration::from_millis(100),
            reconnect_delay_max: Duration::from_secs(5),
            policy: Policy::default(),
        }
    }

    /// Whether the times fit together: the outcome of a write is known before its deadline wherever its first attempt was at once.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn check(&self) -> Result<(), OptionsError> {
        if self.deadline > DEADLINE_MAX {
            return Err(OptionsError::Deadline {
                deadline: self.deadline,
                max: DEADLINE_MAX,
            });
        }
        if self.keep_alive < KEEP_ALIVE_MIN {
            return Err(OptionsError::KeepAlive(self.keep_alive));
        }
        self.check_death(self.keep_alive + self.quiesce_margin)
    }

    /// The same for a controller that is surely dead so long after it was lost.
    ///
    /// # Errors
    /// [`OptionsError::TooSlow`].
    pub fn check_death(&self, dead_after: Duration) -> Result<(), OptionsError> {
        if self.command_timeout + dead_after >= self.deadline {
            return Err(OptionsError::TooSlow {
                command_timeout: self.command_timeout,
                dead_after,
                deadline: self.deadline,
            });
        }
        Ok(())
    }
}
