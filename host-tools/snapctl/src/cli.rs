//! The command line: what can be asked for, and its help.

use std::path::PathBuf;

use admin_proto::v1::{AnyHost, HostList, HostPolicy, host_policy::Hosts};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::{
    announce, controller, doctor, events, function, host, listener, namespace, recorder, referral,
    stat, subsystem, target, top,
};

/// Look at a running snap-target and change what it serves.
#[derive(Debug, Parser)]
#[command(
    name = "snapctl",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = EXIT_STATUS,
    max_term_width = 120
)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_STATUS: &str = "\
Exit status:
  0  done
  1  a fault of the daemon, or doctor found something that fails
  2  the command line is not right
  3  something here cannot be read or printed, or the daemon is of another version
  4  what was named is not there
  5  it is there already, or cannot be done as things are, or is one more than a limit
  6  the daemon does not allow it to us
  7  the daemon cannot be reached, does not answer in time, or is at its end
  130  namespace prefetch was interrupted: its order ends, and what was fetched stays

A command that failed has changed nothing; only with 7, where the answer did not come, it may have. With --json, a failure is one JSON object on standard
error: code, reason, field, object_kind, object_key, message, exit_status.

Sizes are whole bytes or have KiB, MiB, GiB or TiB behind them: 64KiB. Every command with --json prints one JSON object a line, with the fields of
the messages in snap-target/proto. NO_COLOR is honoured.

Examples:
  snapctl subsystem create nqn.2026-11.org.example:data
  snapctl host allow nqn.2026-11.org.example:data \\
      nqn.2014-08.org.nvmexpress:uuid:d0e5c1d8-8a2c-4b6c-9a0e-0242ac120002
  snapctl namespace attach nqn.2026-11.org.example:data /srv/tokens.xio
  snapctl stat";

/// What holds for every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "The daemon")]
pub struct Global {
    /// Its Unix socket
    #[arg(
        long,
        global = true,
        env = "XIO_ADMIN_SOCKET",
        default_value = "/run/xio/snap-target.sock",
        value_name = "PATH"
    )]
    pub socket: PathBuf,

    /// Reach it over TCP with TLS, whatever --socket says; needs --tls-ca, --tls-cert and --tls-key
    #[arg(long, global = true, value_name = "HOST:PORT")]
    pub tcp: Option<String>,

    /// Certificate that vouches for the daemon (PEM)
    #[arg(long, global = true, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// Our certificate, by which the daemon knows what we may do (PEM)
    #[arg(long, global = true, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// The key of our certificate (PEM)
    #[arg(long, global = true, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Name in the daemon's certificate, where it is not HOST
    #[arg(long, global = true, value_name = "NAME")]
    pub tls_name: Option<String>,

    /// Longest wait for an answer
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub timeout: u32,

    /// Print for programs: one JSON object a line
    #[arg(long, global = true)]
    pub json: bool,

    /// Rows of a page of a list; 0: as many as fit an answer. All pages are asked for either way
    #[arg(long, global = true, hide_short_help = true, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub page_size: u32,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make, delete and list NVMe subsystems
    #[command(subcommand)]
    Subsystem(subsystem::Subsystem),
    /// Attach, detach, resize and show namespaces: the disks that hosts see
    #[command(subcommand)]
    Namespace(namespace::Namespace),
    /// Say which hosts may connect
    #[command(subcommand)]
    Host(host::Host),
    /// Say where the target listens
    #[command(subcommand)]
    Listener(listener::Listener),
    /// Name other discovery services to hosts
    #[command(subcommand)]
    Referral(referral::Referral),
    /// Make, delete and list functions for virtual machines: NVMe controllers and virtio disks
    #[command(subcommand)]
    Function(function::Function),
    /// List the controllers of connected hosts, and end one
    #[command(subcommand)]
    Controller(controller::Controller),
    /// Show the daemon and its health, or let it end
    #[command(subcommand)]
    Target(target::Target),
    /// Show what hosts and namespaces do, by the second
    Stat(stat::Stat),
    /// Show it live
    Top(top::Top),
    /// Show what happens: namespaces, hosts, controllers, health, progress, announcements
    Events(events::Events),
    /// Print the flight recorders: the last events of each reactor
    #[command(subcommand)]
    Recorder(recorder::Recorder),
    /// Tell other subscribers where a reader of a host is in its data
    Announce(announce::Announce),
    /// Show what hosts announced last
    #[command(subcommand, visible_alias = "announcements")]
    Announcement(announce::Announcement),
    /// Look for what this machine lacks, and say what mends it; needs no daemon
    Doctor(doctor::Doctor),
    /// Print a shell's completion script
    Completions(Completions),
}

/// `snapctl completions`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  snapctl completions bash \\\n      > ~/.local/share/bash-completion/completions/snapctl"
)]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

/// Hosts by name, or any.
#[derive(Debug, Args)]
pub struct HostChoice {
    /// A host, by its NQN; may be given again for more
    #[arg(long = "host", value_name = "NQN")]
    pub hosts: Vec<String>,

    /// Any host, whatever its NQN
    #[arg(long, conflicts_with = "hosts")]
    pub any_host: bool,
}

impl HostChoice {
    /// As the daemon takes it; none where nothing was said.
    pub fn policy(self) -> Option<HostPolicy> {
        if self.any_host {
            Some(any_host())
        } else if self.hosts.is_empty() {
            None
        } else {
            Some(only(self.hosts))
        }
    }
}

/// Every host.
pub fn any_host() -> HostPolicy {
    HostPolicy {
        hosts: Some(Hosts::Any(AnyHost {})),
    }
}

/// These hosts.
pub fn only(nqns: Vec<String>) -> HostPolicy {
    HostPolicy {
        hosts: Some(Hosts::Only(HostList { nqns })),
    }
}

/// The same hosts, by name: a list has no order.
pub fn sorted(mut policy: HostPolicy) -> HostPolicy {
    if let Some(Hosts::Only(list)) = &mut policy.hosts {
        list.nqns.sort_unstable();
    }
    policy
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
