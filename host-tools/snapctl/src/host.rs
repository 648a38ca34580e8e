//! `snapctl host`.

use admin_proto::v1;
use admin_proto::v1::host_policy::Hosts;
use clap::{Args, Subcommand};
use printout::text_table::{Align, TextTable};

use crate::context::Context;
use crate::ensure::Ensure;
use crate::failure::Failure;
use crate::{cli, controller, text};

/// What to do with hosts.
#[derive(Debug, Subcommand)]
pub enum Host {
    /// Let hosts connect to a subsystem
    Allow(Allow),
    /// Let them connect no longer, and end their controllers
    Deny(Deny),
    /// List who may connect and who is connected
    List(List),
}

const ALLOW_HELP: &str = "\
A host's NQN is in its /etc/nvme/hostnqn. While any host is allowed, single hosts cannot be added: --only replaces who may connect by those that are
named, in one step, and ends the controllers of all others.

Examples:
  snapctl host allow nqn.2026-11.org.example:data \\
      nqn.2026-11.org.example:trainer1 nqn.2026-11.org.example:trainer2
  snapctl host allow nqn.2026-11.org.example:data \\
      nqn.2026-11.org.example:trainer1 --only
  snapctl host allow nqn.2026-11.org.example:data --any-host";

/// `snapctl host allow`.
#[derive(Debug, Args)]
#[command(after_help = ALLOW_HELP)]
#[command(group = clap::ArgGroup::new("who").required(true).args(["hosts", "any_host"]))]
pub struct Allow {
    /// The subsystem
    #[arg(value_name = "SUBSYSTEM")]
    pub subsystem_nqn: String,

    /// Hosts, by their NQNs
    #[arg(value_name = "HOST")]
    pub hosts: Vec<String>,

    /// Any host, whatever its NQN
    #[arg(long)]
    pub any_host: bool,

    /// These and no others
    #[arg(long, conflicts_with = "any_host")]
    pub only: bool,

    /// Allowing who is allowed is no failure, with this or without it.
    #[command(flatten)]
    pub ensure: Ensure,
}

const DENY_HELP: &str = "\
Hosts that are not on the list are no failure; they are named. --any-host takes `allow --any-host` back: then nobody may connect until hosts are allowed
by name.

Examples:
  snapctl host deny nqn.2026-11.org.example:data \\
      nqn.2026-11.org.example:trainer2
  snapctl host deny nqn.2026-11.org.example:data --any-host";

/// `snapctl host deny`.
#[derive(Debug, Args)]
#[command(after_help = DENY_HELP)]
#[command(group = clap::ArgGroup::new("who").required(true).args(["hosts", "any_host"]).multiple(false))]
pub struct Deny {
    /// The subsystem
    #[arg(value_name = "SUBSYSTEM")]
    pub subsystem_nqn: String,

    /// Hosts, by their NQNs
    #[arg(value_name = "HOST")]
    pub hosts: Vec<String>,

    /// Any host: what `allow --any-host` allowed
    #[arg(long)]
    pub any_host: bool,
}

/// `snapctl host list`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  snapctl host list\n  snapctl host list nqn.2026-11.org.example:data"
)]
pub struct List {
    /// Of this subsystem only
    #[arg(value_name = "SUBSYSTEM")]
    pub subsystem_nqn: Option<String>,
}

/// Runs one of them.
pub async fn run(command: Host, context: &Context) -> Result<(), Failure> {
    match command {
        Host::Allow(arguments) if arguments.only => replace(arguments, context).await,
        Host::Allow(arguments) => allow(arguments, context).await,
        Host::Deny(arguments) => deny(arguments, context).await,
        Host::List(arguments) => list(arguments, context).await,
    }
}

async fn allow(arguments: Allow, context: &Context) -> Result<(), Failure> {
    let subsystem_nqn = arguments.subsystem_nqn;
    let request = v1::AllowHostsRequest {
        subsystem_nqn: subsystem_nqn.clone(),
        host_nqns: arguments.hosts,
        any: arguments.any_host,
    };
    let daemon = context.daemon().await?;
    let answer = daemon.answer(daemon.host().allow_hosts(request)).await?;
    context.show(&answer, |answer| {
        now_allowed(&subsystem_nqn, answer.hosts.as_ref())
    })
}

async fn replace(arguments: Allow, context: &Context) -> Result<(), Failure> {
    let subsystem_nqn = arguments.subsystem_nqn;
    let request = v1::SetHostsRequest {
        subsystem_nqn: subsystem_nqn.clone(),
        hosts: Some(cli::only(arguments.hosts)),
    };
    let daemon = context.daemon().await?;
    let answer = daemon.answer(daemon.host().set_hosts(request)).await?;
    context.show(&answer, |answer| {
        now_allowed(&subsystem_nqn, answer.hosts.as_ref())
            + &ended(answer.controllers_ended)
            + &still_closing(answer.closing, &answer.closing_reason)
    })
}

async fn deny(arguments: Deny, context: &Context) -> Result<(), Failure> {
    let subsystem_nqn = arguments.subsystem_nqn;
    let request = v1::DenyHostsRequest {
        subsystem_nqn: subsystem_nqn.clone(),
        host_nqns: arguments.hosts,
        any: arguments.any_host,
    };
    let daemon = context.daemon().await?;
    let answer = daemon.answer(daemon.host().deny_hosts(request)).await?;
    context.show(&answer, |answer| {
        now_allowed(&subsystem_nqn, answer.hosts.as_ref())
            + &text::not_listed(&answer.not_listed)
            + &ended(answer.controllers_ended)
            + &still_closing(answer.closing, &answer.closing_reason)
    })
}

fn now_allowed(subsystem_nqn: &str, hosts: Option<&v1::HostPolicy>) -> String {
    format!("hosts of {subsystem_nqn}: {}\n", text::hosts(hosts))
}

fn ended(controllers: u32) -> String {
    match controllers {
        0 => String::new(),
        controllers => format!("{} ended\n", text::count(controllers.into(), "controller")),
    }
}

fn still_closing(closing: bool, reason: &str) -> String {
    text::still_closing(closing, reason, controller::CLOSING_TELLS)
}

async fn list(arguments: List, context: &Context) -> Result<(), Failure> {
    let daemon = context.daemon().await?;
    let answer = daemon
        .all(|page| {
            let mut client = daemon.host();
            let request = v1::ListHostsRequest {
                subsystem_nqn: arguments.subsystem_nqn.clone().unwrap_or_default(),
                page_size: page.size,
                page_token: page.token,
            };
            async move { client.list_hosts(request).await }
        })
        .await?;
    context.show(&answer, |answer: &v1::ListHostsResponse| {
        let mut table = TextTable::new(&[
            ("subsystem", Align::Left),
            ("host", Align::Left),
            ("allowed", Align::Left),
            ("controllers", Align::Right),
        ]);
        for subsystem in &answer.subsystems {
            for (host, allowed, controllers) in rows(subsystem) {
                table.row([subsystem.subsystem_nqn.clone(), host, allowed, controllers]);
            }
        }
        table.render()
    })
}

/// One row for each host that may connect or is connected.
fn rows(subsystem: &v1::SubsystemHosts) -> Vec<(String, String, String)> {
    let policy = subsystem
        .policy
        .as_ref()
        .and_then(|policy| policy.hosts.as_ref());
    let (any, named): (bool, &[String]) = match policy {
        Some(Hosts::Any(_)) => (true, &[]),
        Some(Hosts::Only(list)) => (false, &list.nqns),
        None => (false, &[]),
    };
    let mut rows = Vec::new();
    if any {
        rows.push(("any".to_owned(), "yes".to_owned(), "-".to_owned()));
    } else if named.is_empty() {
        rows.push(("nobody".to_owned(), "-".to_owned(), "-".to_owned()));
    }
    for nqn in named {
        let controllers = subsystem
            .connected
            .iter()
            .find(|host| host.host_nqn == *nqn)
            .map_or(0, |host| host.controllers);
        rows.push((nqn.clone(), "yes".to_owned(), controllers.to_string()));
    }
    for host in &subsystem.connected {
        if !named.contains(&host.host_nqn) {
            let allowed = if any { "by any" } else { "no longer" };
            rows.push((
                host.host_nqn.clone(),
                allowed.to_owned(),
                host.controllers.to_string(),
            ));
        }
    }
    rows
}
