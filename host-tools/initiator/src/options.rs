//! What a caller may choose about a connection.

use std::time::Duration;

use nvme::initiator::Association;
use nvme::nqn::Nqn;
use nvme::tcp::host::HostOptions;

/// How to connect. [`Options::default`] suits a reader on a local network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// This host's NQN.
    pub hostnqn: String,
    /// This host's identifier.
    pub host_id: [u8; 16],
    /// I/O queues to ask for; the controller may grant fewer. At least 1.
    pub queues: u16,
    /// Commands outstanding on each I/O queue; fewer where the controller takes fewer. At least 1.
    pub depth: u16,
    /// Header digests (CRC-32C); a target that does not use them is refused.
    pub header_digest: bool,
    /// Data digests (CRC-32C); a target that does not use them is refused.
    pub data_digest: bool,
    /// The keep-alive timeout that the target is given; zero = none. With one, call [`crate::Initiator::keep_alive`] at least each
    /// half of it while no reads and writes run.
    pub keep_alive: Duration,
    /// TCP congestion control of this host's sockets, "reno" for one; `None` leaves the system's. Where that is BBR, large writes over
    /// loopback gain a fifth with reno: BBR paces what there is no network to pace for.
    pub congestion: Option<String>,
    /// Time for the TCP connection to be accepted.
    pub connect_timeout: Duration,
    /// A command that is not answered within this time ends the connection.
    pub command_timeout: Duration,
}

impl Default for Options {
    /// A random host of its own, one queue of depth 32, no digests, no keep alive, 10 s to connect, 30 s for a command.
    fn default() -> Options {
        let (hostnqn, host_id) = host_identity::made_up();
        Options {
            hostnqn,
            host_id,
            queues: 1,
            depth: 32,
            header_digest: false,
            data_digest: false,
            keep_alive: Duration::ZERO,
            congestion: None,
            connect_timeout: Duration::from_secs(10),
            command_timeout: Duration::from_secs(30),
        }
    }
}

impl Options {
    /// As [`Options::default`], but the host `hostnqn`; where none is named this machine, as /etc/nvme/hostnqn and hostid call it for nvme-cli too, if
    /// they do. The same name always has the same identifier.
    pub fn of_host(hostnqn: Option<&Nqn>) -> Options {
        let defaults = Options::default();
        match host_identity::named(hostnqn) {
            Some((nqn, host_id)) => Options {
                hostnqn: nqn.as_str().to_owned(),
                host_id,
                ..defaults
            },
            None => defaults,
        }
    }

    pub(crate) fn association(&self, subnqn: &str) -> Association {
        Association {
            host_id: self.host_id,
            hostnqn: self.hostnqn.clone(),
            subnqn: subnqn.to_owned(),
        }
    }

    pub(crate) fn queue(&self, depth: u16, in_capsule_bytes_max: Option<u32>) -> HostOptions {
        let defaults = HostOptions::default();
        HostOptions {
            depth,
            header_digest: self.header_digest,
            data_digest: self.data_digest,
            in_capsule_bytes_max: in_capsule_bytes_max.unwrap_or(defaults.in_capsule_bytes_max),
            command_timeout: self.command_timeout,
        }
    }
}
