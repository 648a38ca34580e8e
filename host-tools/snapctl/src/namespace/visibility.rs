//! `snapctl namespace visibility`, `show-to` and `hide-from`.

use admin_proto::v1;
use admin_proto::v1::visibility::To;
use clap::Args;

use super::Changed;
use crate::context::Context;
use crate::failure::Failure;
use crate::text;

/// What says that the last operation of hosts that lost a namespace has ended.
const HIDDEN_TELLS: &str = "snapctl target health shows it until they have ended, and snapctl events --topic namespace --follow tells when";

/// Hosts by name, or all of the subsystem's.
#[derive(Debug, Args)]
pub struct Audience {
    /// A host that sees it, by its NQN; may be given again for more
    #[arg(long = "host", value_name = "NQN")]
    pub hosts: Vec<String>,

    /// All hosts that may connect to the subsystem see it
    #[arg(long, conflicts_with = "hosts")]
    pub all_hosts: bool,
}

impl Audience {
    /// As the daemon takes it; none where nothing was said.
    pub fn visibility(&self) -> Option<v1::Visibility> {
        let to = if self.all_hosts {
            To::All(v1::AllHosts {})
        } else if self.hosts.is_empty() {
            return None;
        } else {
            To::Only(v1::HostList {
                nqns: self.hosts.clone(),
            })
        };
        Some(v1::Visibility { to: Some(to) })
    }
}

const HELP: &str = "\
Hosts that gain or lose the namespace are told. Only hosts that may connect to the subsystem can see it (`snapctl host allow`).
To add hosts or take hosts away: `snapctl namespace show-to`, `snapctl namespace hide-from`.

Examples:
  snapctl namespace visibility nqn.2026-11.org.example:data 3 \\
      --host nqn.2026-11.org.example:trainer1
  snapctl namespace visibility nqn.2026-11.org.example:data 3 --all-hosts
  snapctl namespace visibility nqn.2026-11.org.example:data 3 --no-host";

/// `snapctl namespace visibility`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
#[command(group = clap::ArgGroup::new("who").required(true).args(["hosts", "all_hosts", "no_host"]))]
pub struct Visibility {
    /// Which.
    #[command(flatten)]
    pub changed: Changed,

    /// Who sees it.
    #[command(flatten)]
    pub hosts: Audience,

    /// No host
    #[arg(long)]
    pub no_host: bool,
}

const DELTA_HELP: &str = "\
Hosts that see it already, or do not see it, are no failure. Where all hosts see it, `snapctl namespace visibility` makes that a list first.

Examples:
  snapctl namespace show-to nqn.2026-11.org.example:data 3 \\
      nqn.2026-11.org.example:trainer2
  snapctl namespace hide-from nqn.2026-11.org.example:data 3 \\
      nqn.2026-11.org.example:trainer2";

/// `snapctl namespace show-to` and `hide-from`.
#[derive(Debug, Args)]
#[command(after_help = DELTA_HELP)]
pub struct Hosts {
    /// Which.
    #[command(flatten)]
    pub changed: Changed,

    /// Hosts, by their NQNs
    #[arg(value_name = "HOST", required = true)]
    pub hosts: Vec<String>,
}

/// Runs `visibility`.
pub async fn set(arguments: Visibility, context: &Context) -> Result<(), Failure> {
    let nobody = || v1::Visibility {
        to: Some(To::Only(v1::HostList::default())),
    };
    let visible_to = arguments.hosts.visibility().unwrap_or_else(nobody);
    let daemon = context.daemon().await?;
    let expected_uuid = arguments.changed.expected_uuid(&daemon).await?;
    let request = v1::SetVisibilityRequest {
        subsystem_nqn: arguments.changed.which.subsystem_nqn,
        nsid: arguments.changed.which.nsid,
        visible_to: Some(visible_to),
        expected_uuid,
    };
    let answer = daemon
        .answer(daemon.namespace().set_visibility(request))
        .await?;
    context.show(&answer, |answer| {
        now_seen(answer.namespace.as_ref())
            + &text::still_closing(answer.closing, &answer.closing_reason, HIDDEN_TELLS)
    })
}

/// Runs `show-to`.
pub async fn show_to(arguments: Hosts, context: &Context) -> Result<(), Failure> {
    let daemon = context.daemon().await?;
    let expected_uuid = arguments.changed.expected_uuid(&daemon).await?;
    let request = v1::ShowToRequest {
        subsystem_nqn: arguments.changed.which.subsystem_nqn,
        nsid: arguments.changed.which.nsid,
        host_nqns: arguments.hosts,
        expected_uuid,
    };
    let answer = daemon.answer(daemon.namespace().show_to(request)).await?;
    context.show(&answer, |answer| now_seen(answer.namespace.as_ref()))
}

/// Runs `hide-from`.
pub async fn hide_from(arguments: Hosts, context: &Context) -> Result<(), Failure> {
    let daemon = context.daemon().await?;
    let expected_uuid = arguments.changed.expected_uuid(&daemon).await?;
    let request = v1::HideFromRequest {
        subsystem_nqn: arguments.changed.which.subsystem_nqn,
        nsid: arguments.changed.which.nsid,
        host_nqns: arguments.hosts,
        expected_uuid,
    };
    let answer = daemon.answer(daemon.namespace().hide_from(request)).await?;
    context.show(&answer, |answer| {
        now_seen(answer.namespace.as_ref())
            + &text::not_listed(&answer.not_listed)
            + &text::still_closing(answer.closing, &answer.closing_reason, HIDDEN_TELLS)
    })
}

fn now_seen(namespace: Option<&v1::Namespace>) -> String {
    let namespace = namespace.cloned().unwrap_or_default();
    let (nsid, subsystem) = (namespace.nsid, namespace.subsystem_nqn);
    let hosts = text::seen_by(namespace.visible_to.as_ref());
    format!("nsid {nsid} of {subsystem} is seen by: {hosts}\n")
}
