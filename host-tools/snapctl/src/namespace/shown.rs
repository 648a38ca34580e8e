//! `snapctl namespace list` and `show`.

use admin_proto::v1::{self, WriteProtection};
use clap::Args;
use printout::size::{Size, grouped, rounded};
use printout::text_table::{Align, TextTable};

use super::Which;
use crate::connection::Daemon;
use crate::context::Context;
use crate::failure::Failure;
use crate::text;

/// What says that the last operation of a detached namespace has ended.
pub const CLOSING_TELLS: &str = "snapctl namespace list shows it as closing until they have ended, and snapctl events --topic namespace --follow tells when";

/// `snapctl namespace list`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  snapctl namespace list\n  snapctl namespace list nqn.2026-11.org.example:data --json \\\n      | jq '.namespaces[].bytes'"
)]
pub struct List {
    /// Of this subsystem only
    #[arg(value_name = "SUBSYSTEM")]
    pub subsystem_nqn: Option<String>,
}

/// `snapctl namespace show`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  snapctl namespace show nqn.2026-11.org.example:data 3")]
pub struct Show {
    /// Which.
    #[command(flatten)]
    pub which: Which,
}

/// All of one subsystem, or of all where it is empty.
pub async fn all(
    daemon: &Daemon,
    subsystem_nqn: &str,
) -> Result<v1::ListNamespacesResponse, Failure> {
    let list = daemon.all(|page| {
        let mut client = daemon.namespace();
        let request = v1::ListNamespacesRequest {
            subsystem_nqn: subsystem_nqn.to_owned(),
            page_size: page.size,
            page_token: page.token,
        };
        async move { client.list_namespaces(request).await }
    });
    list.await
}

/// Runs `list`.
pub async fn list(arguments: List, context: &Context) -> Result<(), Failure> {
    let subsystem_nqn = arguments.subsystem_nqn.unwrap_or_default();
    let answer = all(&context.daemon().await?, &subsystem_nqn).await?;
    context.show(&answer, |answer| {
        let has_limits = answer.namespaces.iter().any(|it| !it.limit.is_empty());
        let mut columns = vec![
            ("subsystem", Align::Left),
            ("nsid", Align::Right),
            ("kind", Align::Left),
            ("size", Align::Right),
            ("block", Align::Right),
            ("writes", Align::Left),
            ("seen by", Align::Left),
            ("state", Align::Left),
        ];
        columns.extend(has_limits.then_some(("limit", Align::Left)));
        columns.push(("source", Align::Left));
        let mut table = TextTable::new(&columns);
        for namespace in &answer.namespaces {
            let mut row = vec![
                namespace.subsystem_nqn.clone(),
                namespace.nsid.to_string(),
                kind(namespace.kind),
                rounded(namespace.bytes),
                Size(namespace.lba_bytes.into()).to_string(),
                writes_of(namespace),
                text::seen_by_in_short(namespace.visible_to.as_ref()),
                state_in_short(namespace),
            ];
            row.extend(has_limits.then(|| text::or_dash(&namespace.limit)));
            row.push(namespace.source_text.clone());
            table.row(row);
        }
        table.render()
    })
}

/// Runs `show`.
pub async fn show(which: Which, context: &Context) -> Result<(), Failure> {
    let request = v1::GetNamespaceRequest {
        subsystem_nqn: which.subsystem_nqn,
        nsid: which.nsid,
    };
    let daemon = context.daemon().await?;
    let answer = daemon
        .answer(daemon.namespace().get_namespace(request))
        .await?;
    context.show(&answer, |answer| {
        let namespace = answer.namespace.clone().unwrap_or_default();
        describe(&namespace) + &parts(&namespace) + &users(&answer.hosts)
    })
}

/// A table of the hosts that use it; nothing where none does.
fn users(hosts: &[v1::NamespaceHost]) -> String {
    if hosts.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(&[
        ("host", Align::Left),
        ("host id", Align::Left),
        ("controllers", Align::Right),
        ("last I/O", Align::Left),
        ("reservation", Align::Left),
    ]);
    for host in hosts {
        let last_io = match &host.last_io_at {
            Some(at) => text::when(Some(at)),
            None => "never".to_owned(),
        };
        let reservation = match (host.reservation_holder, host.registrant) {
            (true, _) => "holder",
            (false, true) => "registrant",
            (false, false) => "-",
        };
        table.row([
            text::or_dash(&host.host_nqn),
            text::or_dash(&host.host_id),
            host.controllers.to_string(),
            last_io,
            reservation.to_owned(),
        ]);
    }
    format!("\n{}", table.render())
}

/// A table of the parts of a mixed namespace; nothing of any other.
fn parts(namespace: &v1::Namespace) -> String {
    if namespace.parts.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(&[
        ("blocks", Align::Left),
        ("kind", Align::Left),
        ("size", Align::Right),
        ("writes", Align::Left),
        ("source", Align::Left),
    ]);
    for part in &namespace.parts {
        let last = (part.first_lba + part.block_count).saturating_sub(1);
        let bytes = part.block_count.saturating_mul(namespace.lba_bytes.into());
        let writes = if part.read_only { "no" } else { "yes" };
        table.row([
            format!("{} to {}", grouped(part.first_lba), grouped(last)),
            kind(part.kind),
            rounded(bytes),
            writes.to_owned(),
            part.source_text.clone(),
        ]);
    }
    format!("\n{}", table.render())
}

fn describe(namespace: &v1::Namespace) -> String {
    let mut lines = vec![
        ("subsystem", namespace.subsystem_nqn.clone()),
        ("nsid", namespace.nsid.to_string()),
        ("uuid", namespace.uuid.clone()),
        ("nguid", namespace.nguid.clone()),
        ("source", namespace.source_text.clone()),
        ("path", text::or_dash(&namespace.path)),
        ("kind", kind(namespace.kind)),
        (
            "size",
            format!(
                "{} ({} blocks of {})",
                Size(namespace.bytes),
                grouped(namespace.block_count),
                Size(namespace.lba_bytes.into())
            ),
        ),
        ("writes", writes_in_full(namespace)),
        ("seen by", text::seen_by(namespace.visible_to.as_ref())),
        ("controllers", namespace.controllers.to_string()),
        ("state", state(namespace.state)),
        ("made by", text::origin(namespace.origin)),
    ];
    if !namespace.limit.is_empty() {
        lines.push(("limit", namespace.limit.clone()));
    }
    if !namespace.state_detail.is_empty() {
        lines.push(("why", namespace.state_detail.clone()));
    }
    if let Some(damage) = &namespace.damage {
        let at = text::when(damage.first_at.as_ref());
        let reads = text::count(damage.reads, "read");
        let lba = damage.first_lba.map(|lba| format!(", LBA {lba}"));
        let lba = lba.unwrap_or_default();
        lines.push(("damaged", format!("{reads}, the first at {at}{lba}")));
    }
    if let Some(view) = &namespace.view {
        lines.push((
            "volume",
            format!("{}, generation {}", view.volume_uuid, view.generation),
        ));
        lines.push(("view", view.name.clone()));
        lines.push(("presented", rounded(view.presented_bytes)));
        lines.push(("stored", rounded(view.stored_bytes)));
    }
    text::description(&lines)
}

fn kind(number: i32) -> String {
    match v1::NamespaceKind::try_from(number) {
        Ok(v1::NamespaceKind::Raw) => "raw".to_owned(),
        Ok(v1::NamespaceKind::View) => "view".to_owned(),
        Ok(v1::NamespaceKind::Mixed) => "mixed".to_owned(),
        Ok(v1::NamespaceKind::Unspecified) => "-".to_owned(),
        Err(_) => number.to_string(),
    }
}

/// A state, with how many reads met damage.
fn state_in_short(namespace: &v1::Namespace) -> String {
    let state = state(namespace.state);
    match &namespace.damage {
        Some(damage) => format!("{state} ({})", text::count(damage.reads, "read")),
        None => state,
    }
}

fn state(number: i32) -> String {
    match v1::NamespaceState::try_from(number) {
        Ok(v1::NamespaceState::Ready) => "ready".to_owned(),
        Ok(v1::NamespaceState::Failed) => "failed".to_owned(),
        Ok(v1::NamespaceState::Closing) => "closing".to_owned(),
        Ok(v1::NamespaceState::Degraded) => "degraded".to_owned(),
        Ok(v1::NamespaceState::Unspecified) => "-".to_owned(),
        Err(_) => number.to_string(),
    }
}

/// Whether hosts may write, and to what.
fn writes_in_full(namespace: &v1::Namespace) -> String {
    let written = writes_of(namespace);
    let is_everywhere = namespace.parts.iter().all(|part| !part.read_only);
    match namespace.write_protection() {
        WriteProtection::None if !is_everywhere => format!("{written}, to some parts"),
        _ => written,
    }
}

/// Whether hosts may write, and whether anybody does.
fn writes_of(namespace: &v1::Namespace) -> String {
    let written = writes(namespace.write_protection);
    match namespace.immutable {
        true => format!("{written} (immutable)"),
        false => written,
    }
}

/// Whether hosts may write.
pub fn writes(number: i32) -> String {
    match v1::WriteProtection::try_from(number) {
        Ok(v1::WriteProtection::None) => "yes".to_owned(),
        Ok(v1::WriteProtection::ReadOnly) => "no".to_owned(),
        Ok(v1::WriteProtection::ByHost) => "no (a host said so)".to_owned(),
        Ok(v1::WriteProtection::UntilRestart) => "no (until restart)".to_owned(),
        Ok(v1::WriteProtection::Permanent) => "no (permanent)".to_owned(),
        Ok(v1::WriteProtection::Unspecified) => "-".to_owned(),
        Err(_) => number.to_string(),
    }
}
